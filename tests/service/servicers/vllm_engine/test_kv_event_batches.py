"""KV events as routers read them."""

from typing import Any

import pytest
from smg_grpc_proto.generated import common_pb2 as pb

from core.wire.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent, KVEventBatch
from service.kv_events.batches import NumberedBatch, chunks_of
from service.kv_events.known_blocks import KnownBlocks
from service.servicers.vllm_engine.kv_event_batches import KvEventBatches
from tests.service.kv_events.events import name_of, removed, stored


def batch(*events: KVEvent, number: int = 0, salts: list[str | None] | None = None) -> NumberedBatch:
    return NumberedBatch(1, number, KVEventBatch(2.5, [*events], 1), 10, salts or [None] * len(events))


def test_stored_removed_cleared() -> None:
    """With everything that the contract has a place for."""
    fields: dict[str, Any] = {"lora_name": "a", "lora_id": 7, "kv_cache_spec_kind": "full_attention"}
    fields["extra_keys"] = [("a", b"digest", 5, ("image", 3)), None]
    events = stored(5, count=2, parent=4, **fields), removed(5), AllBlocksCleared()
    message = KvEventBatches().of(batch(*events, number=9, salts=["salt", None, None]))
    assert (message.sequence_number, message.timestamp, message.dp_rank) == (9, 2.5, 1)
    assert [event.event_id for event in message.events] == [1, 2, 3]
    assert message.events[0].stored == pb.KvBlocksStored(
        blocks=[
            pb.KvBlock(
                block_hash=5,
                token_ids=[5, 6],
                block_size=2,
                lora_id=7,
                cache_level=0,
                extra_keys=[
                    pb.KvBlockExtraKey(text="a"),
                    pb.KvBlockExtraKey(blob=b"digest"),
                    pb.KvBlockExtraKey(number=5),
                    pb.KvBlockExtraKey(multimodal=pb.KvMultimodalKey(identifier="image", offset=3)),
                ],
            ),
            pb.KvBlock(block_hash=6, token_ids=[6, 7], block_size=2, lora_id=7, cache_level=0),
        ],
        parent_block_hash=4,
        tier=pb.KV_CACHE_TIER_DEVICE,
        medium="GPU",
        group_idx=0,
        kv_cache_spec_kind="full_attention",
        locality=pb.KV_CACHE_LOCALITY_LOCAL,
        lora_name="a",
        cache_salt="salt",
    )
    assert [*message.events[1].removed.block_hashes] == [5]
    assert message.events[1].removed.tier == pb.KV_CACHE_TIER_DEVICE
    assert message.events[2].HasField("cleared")


@pytest.mark.parametrize(
    ("block_hash", "number"),
    [
        (b"\1" * 8 + b"\0" * 7 + b"\5", 5),
        (b"\xff" * 16, -1),
        (b"\3", 3),
        (2**64 - 2, -2),
        (2**63, -(2**63)),
        (-7, -7),
    ],
)
def test_hashes_are_the_numbers_that_vllm_gives_them(block_hash: bytes | int, number: int) -> None:
    """The low 64 bits, with a sign."""
    event = BlockStored([block_hash], block_hash, [1], 1, None, None, None)
    (told,) = KvEventBatches().of(batch(event)).events
    assert (told.stored.blocks[0].block_hash, told.stored.parent_block_hash) == (number, number)
    assert told.stored.tier == pb.KV_CACHE_TIER_DEVICE
    assert not told.stored.HasField("medium")


def test_side_groups_are_left_out() -> None:
    """Of a sliding window neither what is stored nor, from then on, what is removed; the numbers go on."""
    batches = KvEventBatches()
    window = stored(1, group_idx=1, kv_cache_spec_kind="sliding_window", kv_cache_spec_sliding_window=8)
    message = batches.of(batch(window, stored(1, kv_cache_spec_kind="full_attention"), BlockRemoved([b"x"], "GPU", 1)))
    assert [event.event_id for event in message.events] == [2]
    assert [event.event_id for event in batches.of(batch(removed(1))).events] == [4]


def test_media() -> None:
    """Known ones have a tier; what is elsewhere is left out."""
    message = KvEventBatches().of(batch(*(stored(1, medium=medium) for medium in ("CPU", "STORAGE", "MOON"))))
    assert [event.stored.tier for event in message.events] == [pb.KV_CACHE_TIER_HOST, pb.KV_CACHE_TIER_DISK]
    assert [event.stored.blocks[0].cache_level for event in message.events] == [1, 2]


def test_a_snapshot_fills_an_empty_cache() -> None:
    """It begins with everything being forgotten; each block is an event of its own, which no core has numbered."""
    known = KnownBlocks()
    known.learn(stored(1, count=2, extra_keys=[("salt",), None]))
    known.learn(stored(9, group_idx=1, kv_cache_spec_kind="sliding_window"))
    first, second = map(KvEventBatches().of, chunks_of(1, 7, 300, [*known.listed()] * 100, 3))
    assert (first.sequence_number, second.sequence_number) == (6, 7)
    assert (first.snapshot, second.snapshot) == (
        pb.KvSnapshotChunk(index=0, count=2, blocks=300, unknown_before=3),
        pb.KvSnapshotChunk(index=1, count=2, blocks=300, unknown_before=3),
    )
    assert first.events[0].HasField("cleared")
    assert {event.event_id for event in first.events} == {0}
    assert [event.stored.blocks[0].block_hash for event in first.events[1:3]] == [1, 2]
    assert [event.stored.cache_salt for event in first.events[1:3]] == ["salt", "salt"]
    assert first.events[2].stored.parent_block_hash == 1
    assert len(first.events) - 1 + len(second.events) == 200
    assert name_of(9) not in {event.stored.blocks[0].block_hash for event in second.events}
