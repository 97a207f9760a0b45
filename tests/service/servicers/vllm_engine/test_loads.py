"""GetLoads and GetServerInfo, with a core that says what the test says."""

import time
from datetime import UTC, datetime

import grpc
import msgspec
import pytest
from smg_grpc_proto.generated import vllm_engine_pb2 as pb
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineStub

from core.wire.messages import EngineCoreOutput, PrefillStats
from core.wire.stats import SchedulerStats
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import READY, FakeCore
from tests.service.servicers.vllm_engine.calls import asks

_SEATS = msgspec.structs.replace(READY, max_num_seqs=7)


@pytest.mark.parametrize("core", [_SEATS], indirect=True)
async def test_loads_are_what_the_core_says_and_what_came_of_late(engine: VllmEngineStub, core: FakeCore) -> None:
    """Of two requests one runs, with a quarter of its prompt cached, and one waits, whose prompt counts by three."""
    running = engine.Generate(asks("a", prompt=b"12345678"))
    core_id = (await core.receive_add()).request_id
    waiting = engine.Generate(asks("b", prompt=b"1234"))
    await core.receive_add()
    stats = SchedulerStats(num_running_reqs=1, num_waiting_reqs=1, num_skipped_waiting_reqs=1, kv_cache_usage=0.25)
    core.emit(EngineCoreOutput(core_id, [65, 66, 67], prefill_stats=PrefillStats(8, 6, 2)), stats=stats)
    assert (await running.read()).chunk.cached_tokens == 2
    answer = await engine.GetLoads(pb.GetLoadsRequest(include=["core", "disagg", "queues", "memory"]))
    assert (answer.version, answer.dp_rank_count) == ("0.25.1", 1)
    assert abs(datetime.fromisoformat(answer.timestamp) - datetime.now(UTC)).total_seconds() < 60
    (load,) = answer.loads
    assert load == pb.SchedulerLoad(
        num_running_reqs=1,
        num_waiting_reqs=2,
        num_total_reqs=3,
        num_used_tokens=404,
        max_total_num_tokens=1616,
        token_usage=0.25,
        utilization=0.25,
        gen_throughput=1.5,
        cache_hit_rate=0.25,
        max_running_requests=7,
        num_waiting_uncached_tokens=3,
    )
    running.cancel()
    waiting.cancel()


async def test_before_anything_has_run_loads_are_zero(engine: VllmEngineStub) -> None:
    """And every rank is there; a core that does not say how many it runs at once counts 0."""
    (load,) = (await engine.GetLoads(pb.GetLoadsRequest())).loads
    assert load == pb.SchedulerLoad(max_total_num_tokens=1616)


async def test_a_rank_can_be_asked_for(engine: VllmEngineStub) -> None:
    """One that is not there is named."""
    assert len((await engine.GetLoads(pb.GetLoadsRequest(dp_rank=0))).loads) == 1
    for rank in (-1, 1):
        error = await error_of(engine.GetLoads(pb.GetLoadsRequest(dp_rank=rank)))
        assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["dp_rank"])


@pytest.mark.parametrize("core", [_SEATS], indirect=True)
@pytest.mark.parametrize("is_paused", [True, False])
async def test_server_info(engine: VllmEngineStub, core: FakeCore, is_paused: bool) -> None:
    """What this server is, and what the core says of itself; whether it is paused only the core knows."""
    stream = engine.Generate(asks())
    core.emit_token((await core.receive_add()).request_id, 65)
    await stream.read()
    asking = engine.GetServerInfo(pb.GetServerInfoRequest())
    call = await core.receive_call()
    assert call.method == "is_scheduler_paused"
    core.answer(call, is_paused)
    info = await asking
    assert 0 <= info.uptime_seconds < 600
    assert abs(info.last_receive_timestamp - time.time()) < 600
    info.ClearField("uptime_seconds")
    info.ClearField("last_receive_timestamp")
    assert info == pb.GetServerInfoResponse(
        active_requests=1,
        is_paused=is_paused,
        server_type="vllm-grpc",
        data_parallel_size=1,
        kv_cache_dtype="auto",
        block_size=16,
        model_dtype="torch.float32",
        max_num_seqs=7,
    )
    stream.cancel()


async def test_server_info_of_a_core_that_does_not_know_pauses(engine: VllmEngineStub, core: FakeCore) -> None:
    """It is not paused, and has not been heard since it was ready."""
    asking = engine.GetServerInfo(pb.GetServerInfoRequest())
    core.answer(await core.receive_call(), failure="no such method")
    info = await asking
    assert not info.is_paused
    assert info.max_num_seqs == 0
