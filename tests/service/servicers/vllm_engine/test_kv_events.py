"""VllmEngine.SubscribeKvEvents, from a core's publisher to a router."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from smg_grpc_proto.generated import common_pb2 as pb
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineStub

from core.kv_event_publisher import KVEventPublisher
from core.wire.messages import EngineCoreOutput, FinishReason
from core.wire.stats import SchedulerStats
from service.config import GatewayConfig
from service.server import GatewayServer
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import FakeCore
from tests.service.kv_events.events import removed, stored
from tests.service.kv_events.publishing import events_in, publishing_for
from tests.service.servicers.vllm_engine.calls import asks

Call = grpc.aio.UnaryStreamCall[pb.SubscribeKvEventsRequest, pb.KvEventBatch]


@pytest.fixture
def gateway_config(gateway_config: GatewayConfig, tmp_path: Path) -> GatewayConfig:
    """Of a gateway whose core publishes."""
    return dataclasses.replace(gateway_config, kv_events=events_in(tmp_path))


@pytest.fixture
def publisher(gateway_config: GatewayConfig) -> Iterator[KVEventPublisher]:
    with publishing_for(gateway_config) as publisher:
        yield publisher


async def subscribed(engine: VllmEngineStub, **fields: object) -> Call:
    call: Call = engine.SubscribeKvEvents(pb.SubscribeKvEventsRequest(**fields), timeout=30)
    await call.initial_metadata()
    return call


async def next_events(call: Call) -> pb.KvEventBatch:
    """The next batch that is not of the load alone."""
    while (batch := await call.read()).load.load_only:
        pass
    assert isinstance(batch, pb.KvEventBatch)
    return batch


async def next_load(call: Call) -> pb.KvEventBatch:
    """The next batch of the load alone."""
    while not (batch := await call.read()).load.load_only:
        pass
    assert isinstance(batch, pb.KvEventBatch)
    return batch


async def test_batches_have_the_load(engine: VllmEngineStub, core: FakeCore, publisher: KVEventPublisher) -> None:
    """And when it changes without an event, it goes out alone, under the last number."""
    call = await subscribed(engine)
    publisher.publish([stored(1, count=2)])
    batch = await next_events(call)
    assert (batch.sequence_number, batch.dp_rank, [event.event_id for event in batch.events]) == (0, 0, [1])
    assert (batch.load.sample, batch.load.running_requests, batch.load.max_total_num_tokens) == (1, 0, 1616)
    assert not batch.load.HasField("engine_silence_ms")
    generation = engine.Generate(asks("a", prompt=b"12345678"))
    request_id = (await core.receive_add()).request_id
    pending = await next_load(call)
    while pending.load.prefill_pending_tokens == 0:
        pending = await next_load(call)
    assert pending.load.prefill_pending_tokens == 8
    assert pending.load.HasField("engine_silence_ms")
    core.emit(EngineCoreOutput(request_id, [65]), stats=SchedulerStats(num_running_reqs=1, kv_cache_usage=0.25))
    running = await next_load(call)
    while running.load.running_requests == 0:
        running = await next_load(call)
    assert (running.sequence_number, running.load.token_usage, running.load.num_used_tokens) == (0, 0.25, 404)
    core.emit(EngineCoreOutput(request_id, [66], finish_reason=FinishReason.STOP), stats=SchedulerStats())
    assert [message async for message in generation]
    publisher.publish([removed(2)])
    assert [*(await next_events(call)).events[0].removed.block_hashes] == [2]
    call.cancel()


async def test_who_comes_late_gets_a_snapshot(engine: VllmEngineStub, publisher: KVEventPublisher) -> None:
    """And goes on from there."""
    early = await subscribed(engine)
    for number in range(3):
        publisher.publish([stored(number)])
        assert (await next_events(early)).sequence_number == number
    late = await subscribed(engine)
    snapshot = await next_events(late)
    assert (snapshot.sequence_number, snapshot.snapshot.blocks, len(snapshot.events)) == (2, 3, 4)
    publisher.publish([removed(1)])
    assert (await next_events(late)).sequence_number == 3
    for call in (early, late):
        call.cancel()


async def test_load_before_the_first_batch(engine: VllmEngineStub) -> None:
    """For those who can take it."""
    call = await subscribed(engine, load_records_before_first_batch=True)
    record = await next_load(call)
    assert (record.sequence_number, record.dp_rank, record.load.load_only) == (0, 0, True)
    call.cancel()


async def test_a_core_that_is_restarted(engine: VllmEngineStub, publisher: KVEventPublisher) -> None:
    """DATA_LOSS: routers forget, and subscribe again."""
    call = await subscribed(engine)
    publisher.publish([stored(1)])
    await next_events(call)
    publisher.close()
    error = await error_of(next_events(call))
    assert error.code is grpc.StatusCode.DATA_LOSS


async def test_nothing_to_start_from(engine: VllmEngineStub) -> None:
    """OUT_OF_RANGE for any number but 0."""
    error = await error_of(engine.SubscribeKvEvents(pb.SubscribeKvEventsRequest(start_sequence_number=3)).read())
    assert error.code is grpc.StatusCode.OUT_OF_RANGE


async def test_the_server_shuts_down(gateway: GatewayServer, engine: VllmEngineStub) -> None:
    """The stream ends well, without delaying the end."""
    call = await subscribed(engine)
    await gateway.stop()
    assert await call.read() is grpc.aio.EOF


class TestOff:
    """A gateway that was not told to follow them."""

    @pytest.fixture
    def gateway_config(self, gateway_config: GatewayConfig) -> GatewayConfig:
        return dataclasses.replace(gateway_config, kv_events=None)

    async def test_off(self, engine: VllmEngineStub) -> None:
        """UNIMPLEMENTED, which routers take as a no."""
        error = await error_of(engine.SubscribeKvEvents(pb.SubscribeKvEventsRequest()).read())
        assert (error.code, error.reason) == (grpc.StatusCode.UNIMPLEMENTED, "KV_EVENTS_OFF")
