"""ControlService.SubscribeKvEvents, from a core's publisher to a client."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from core.kv_event_publisher import KVEventPublisher
from core.wire.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from service.config import GatewayConfig
from service.server import GatewayServer
from sluicegate.v1 import control_service_pb2 as pb
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from tests.service.errors_of_calls import error_of
from tests.service.kv_events.events import name_of, removed, stored
from tests.service.kv_events.publishing import events_in, publishing_for
from tests.service.metrics.scrape import scrape_async

Call = grpc.aio.UnaryStreamCall[pb.SubscribeKvEventsRequest, pb.SubscribeKvEventsResponse]


@pytest.fixture
def gateway_config(gateway_config: GatewayConfig, tmp_path: Path) -> GatewayConfig:
    """Of a gateway whose core publishes."""
    listen = dataclasses.replace(gateway_config.listen, metrics_address="127.0.0.1:0")
    return dataclasses.replace(gateway_config, kv_events=events_in(tmp_path), listen=listen)


@pytest.fixture
def publisher(gateway_config: GatewayConfig) -> Iterator[KVEventPublisher]:
    with publishing_for(gateway_config) as publisher:
        yield publisher


async def subscribed(control: ControlServiceStub, **fields: int) -> Call:
    call: Call = control.SubscribeKvEvents(pb.SubscribeKvEventsRequest(**fields), timeout=30)
    await call.initial_metadata()
    return call


async def read(call: Call) -> pb.SubscribeKvEventsResponse:
    message = await call.read()
    assert isinstance(message, pb.SubscribeKvEventsResponse)
    return message


async def read_to_the_end(call: Call) -> None:
    async for _ in call:
        pass


async def test_what_changes(control: ControlServiceStub, publisher: KVEventPublisher) -> None:
    """Number, core, time and the changes in their order, with all that the core says of them."""
    call = await subscribed(control)
    keys = [("adapter", "salt", b"digest", ("image", 3)), None]
    fields: dict[str, object] = {"lora_name": "adapter", "extra_keys": keys, "group_idx": 1}
    fields |= {"kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 64}
    publisher.publish([stored(5, count=2, parent=4, **fields), removed(5, 6), AllBlocksCleared()])
    message = await read(call)
    assert (message.sequence_number, message.data_parallel_rank, message.HasField("snapshot")) == (0, 0, False)
    assert message.time.seconds > 1.7e9
    first, second, third = message.events
    assert first.stored == pb.KvBlocksStored(
        block_hashes=[name_of(5), name_of(6)],
        parent_block_hash=name_of(4),
        token_ids=[5, 6, 6, 7],
        block_size=2,
        lora_name="adapter",
        medium="GPU",
        group_index=1,
        attention_kind="sliding_window",
        sliding_window=64,
        keys=[
            pb.KvBlockKeys(
                keys=[
                    pb.KvBlockKey(text="adapter"),
                    pb.KvBlockKey(text="salt"),
                    pb.KvBlockKey(digest=b"digest"),
                    pb.KvBlockKey(text="image"),
                    pb.KvBlockKey(position=3),
                ]
            ),
            pb.KvBlockKeys(),
        ],
    )
    assert second.removed == pb.KvBlocksRemoved(block_hashes=[name_of(5), name_of(6)], medium="GPU")
    assert third.HasField("cleared")


async def test_numbers_for_hashes(control: ControlServiceStub, publisher: KVEventPublisher) -> None:
    """As vLLM's cores have them; they are 8 bytes."""
    call = await subscribed(control)
    event = BlockStored([2**64 - 2, 3], -1, [7, 8], 1, None, None, None)
    publisher.publish([event, BlockRemoved([2**64 - 2], None)])
    message = await read(call)
    hashes = [b"\xff" * 7 + b"\xfe", b"\0" * 7 + b"\3"]
    assert [*message.events[0].stored.block_hashes] == hashes
    assert message.events[0].stored.parent_block_hash == b"\xff" * 8
    assert [*message.events[1].removed.block_hashes] == hashes[:1]


async def test_a_snapshot_comes_first(control: ControlServiceStub, publisher: KVEventPublisher) -> None:
    """One event for each block; then what follows on it, also for who comes back with a number."""
    early = await subscribed(control)
    publisher.publish([stored(1, count=3, extra_keys=[("salt",), None, None])])
    publisher.publish([removed(3)])
    assert [(await read(early)).sequence_number for _ in range(2)] == [0, 1]
    late = await subscribed(control)
    snapshot = await read(late)
    assert snapshot.sequence_number == 1
    assert snapshot.snapshot == pb.KvSnapshot(index=0, num_parts=1, num_blocks=2)
    assert [[*event.stored.block_hashes] for event in snapshot.events] == [[name_of(1)], [name_of(2)]]
    assert [event.stored.parent_block_hash for event in snapshot.events] == [b"", name_of(1)]
    assert [[*event.stored.token_ids] for event in snapshot.events] == [[1, 2], [2, 3]]
    assert [len(event.stored.keys) for event in snapshot.events] == [1, 0]
    again = await subscribed(control, start_sequence_number=2)
    publisher.publish([removed(2)])
    for call in (early, late, again):
        assert (await read(call)).sequence_number == 2


async def test_a_core_that_is_restarted(
    gateway: GatewayServer, control: ControlServiceStub, publisher: KVEventPublisher
) -> None:
    """DATA_LOSS, with the reason; it is counted."""
    call = await subscribed(control)
    publisher.publish([stored(1)])
    await read(call)
    before = await scrape_async(gateway.metrics_address)
    assert before.value("sluicegate:kv_event_subscribers") == 1
    assert before.value("sluicegate:kv_event_losses_total", engine="0") == 0
    publisher.close()
    error = await error_of(read(call))
    assert (error.code, error.reason) == (grpc.StatusCode.DATA_LOSS, "DATA_LOSS")
    assert "its publisher is gone" in error.message
    after = await scrape_async(gateway.metrics_address)
    assert after.value("sluicegate:kv_event_subscribers") == 0
    assert after.value("sluicegate:kv_event_losses_total", engine="0") == 1


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"start_sequence_number": 7}, grpc.StatusCode.OUT_OF_RANGE, "start_sequence_number: the next batch"),
        ({"data_parallel_rank": 1}, grpc.StatusCode.INVALID_ARGUMENT, "data_parallel_rank: must be in [0, 0], got 1"),
    ],
)
async def test_what_is_not_there(
    control: ControlServiceStub, fields: dict[str, int], code: grpc.StatusCode, text: str
) -> None:
    """Numbers that are not kept, and ranks."""
    error = await error_of(control.SubscribeKvEvents(pb.SubscribeKvEventsRequest(**fields)).read())
    assert error.code is code
    assert text in error.message


async def test_a_client_that_never_reads(control: ControlServiceStub, publisher: KVEventPublisher) -> None:
    """It is cut off with DATA_LOSS, and nobody else notices."""
    slow, quick = await subscribed(control), await subscribed(control)
    large = stored(0, count=8192)
    for number in range(100):
        publisher.publish([large])
        assert (await read(quick)).sequence_number == number
    error = await error_of(read_to_the_end(slow))
    assert (error.code, error.reason) == (grpc.StatusCode.DATA_LOSS, "READS_TOO_SLOWLY")
    quick.cancel()


async def test_the_server_shuts_down(
    gateway: GatewayServer, control: ControlServiceStub, publisher: KVEventPublisher
) -> None:
    """The stream ends well, without delaying the end."""
    call = await subscribed(control)
    publisher.publish([stored(1)])
    await read(call)
    await gateway.stop()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


class TestOff:
    """A gateway that was not told to follow them."""

    @pytest.fixture
    def gateway_config(self, gateway_config: GatewayConfig) -> GatewayConfig:
        return dataclasses.replace(gateway_config, kv_events=None)

    async def test_off(self, control: ControlServiceStub) -> None:
        """UNIMPLEMENTED, with the flag that turns them on."""
        error = await error_of(control.SubscribeKvEvents(pb.SubscribeKvEventsRequest()).read())
        assert (error.code, error.reason) == (grpc.StatusCode.UNIMPLEMENTED, "KV_EVENTS_OFF")
        assert "--kv-events" in error.message
