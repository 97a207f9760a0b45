"""Batches as they come over the wire."""

import logging

import msgspec
import pytest

from core.wire.codec import WireError
from core.wire.kv_events import AllBlocksCleared, BlockRemoved, KVEventBatch
from service.kv_events.batch_decoder import BatchDecoder
from tests.service.kv_events.events import removed, stored

CLEARED = {"type": "AllBlocksCleared"}


def encoded(*events: object, ts: object = 1.5) -> bytes:
    return msgspec.msgpack.encode([ts, [*events], 0])


def test_what_cores_send() -> None:
    """Ours, and vLLM's, whose hashes are numbers and whose events may have further fields."""
    batch = KVEventBatch(2.5, [stored(1, extra_keys=[("salt",)]), removed(1), AllBlocksCleared()], 3)
    assert BatchDecoder().decode(msgspec.msgpack.encode(batch)) == batch
    event = {"type": "BlockRemoved", "block_hashes": [2**64 - 1, -5], "medium": None, "locality": "LOCAL"}
    assert BatchDecoder().decode(encoded(event)).events == [BlockRemoved([2**64 - 1, -5], None)]


def test_unknown_kinds_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """With one warning for each, and what stands beside them counts."""
    decoder = BatchDecoder()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert decoder.decode(encoded({"type": "BlockMoved", "to": 5}, CLEARED)).events == [AllBlocksCleared()]
    assert [record.getMessage() for record in caplog.records] == [
        "KV events of the kind 'BlockMoved' are left out: nobody here knows it"
    ]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x93" * 5000,
        msgspec.msgpack.encode({"ts": 1.0}),
        encoded(ts=float("nan")),
        encoded(ts=-1.0),
        encoded({"no": "type"}),
        encoded({"type": "BlockRemoved"}),
        encoded({"type": "BlockRemoved", "block_hashes": ["text"], "medium": None}),
        encoded(msgspec.to_builtins(stored(1)) | {"group_idx": -1}),
        encoded(msgspec.to_builtins(stored(1)) | {"token_ids": [-1, 2**32]}),
        encoded(msgspec.to_builtins(stored(1)) | {"block_size": 0}),
    ],
)
def test_what_is_no_batch(payload: bytes) -> None:
    """It is refused, whatever it is."""
    with pytest.raises(WireError):
        BatchDecoder().decode(payload)
