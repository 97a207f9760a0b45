"""What routers ask of a server beside work: is it well, is its cache empty, does it know other contracts."""

import asyncio
from functools import partial

import grpc
import pytest
from smg_grpc_proto.generated import common_pb2
from smg_grpc_proto.generated import vllm_engine_pb2 as pb
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineStub

from service.config import GatewayConfig
from service.server import GatewayServer
from service.services import ROUTER_PROBES
from sluicegate.v1.control_service_pb2 import SleepRequest
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import FakeCore
from tests.service.servicers.vllm_engine.calls import asks, messages_of, say, text_of

FlushCacheRequest = common_pb2.FlushCacheRequest


async def health_of(engine: VllmEngineStub) -> tuple[bool, str]:
    answer = await engine.HealthCheck(pb.HealthCheckRequest())
    return answer.healthy, answer.message


async def test_health_is_an_answer_and_no_status(engine: VllmEngineStub, gateway: GatewayServer) -> None:
    """A server that drains says so."""
    assert await health_of(engine) == (True, "Health")
    await gateway.drain()
    assert await health_of(engine) == (False, "the server is draining")


async def test_a_server_that_loads_is_not_healthy(gateway_config: GatewayConfig, core: FakeCore) -> None:
    """It answers all the same; what needs a model is UNAVAILABLE, and an abort has nothing to do."""
    server = GatewayServer(gateway_config)
    starting = asyncio.ensure_future(server.start())
    try:
        async with asyncio.timeout(20):
            await server.listening.wait()
            async with grpc.aio.insecure_channel(server.grpc_addresses[0]) as channel:
                engine = VllmEngineStub(channel)
                assert await health_of(engine) == (False, "the model is still loading")
                await engine.Abort(pb.AbortRequest(request_ids=["a"]))
                for call in (
                    engine.GetModelInfo(pb.GetModelInfoRequest()),
                    engine.GetServerInfo(pb.GetServerInfoRequest()),
                    engine.GetLoads(pb.GetLoadsRequest()),
                    engine.FlushCache(FlushCacheRequest()),
                    messages_of(engine.Generate(asks())),
                ):
                    assert (await error_of(call)).code is grpc.StatusCode.UNAVAILABLE
                await core.shake_hands(gateway_config.core.handshake_address)
                await starting
                assert await health_of(engine) == (True, "Health")
    finally:
        await server.stop()


async def test_an_engine_that_sleeps_is_not_healthy(
    engine: VllmEngineStub, control: ControlServiceStub, core: FakeCore
) -> None:
    """The way back takes as long as a load."""
    sleeping = control.Sleep(SleepRequest(level=1))
    core.answer(await core.receive_call())
    await sleeping
    assert await health_of(engine) == (False, "the engine is asleep")


async def test_a_lost_core_is_told(engine: VllmEngineStub, core: FakeCore, gateway: GatewayServer) -> None:
    """Whoever is asked says why."""
    lost = asyncio.ensure_future(gateway.until_core_lost())
    core.report_death()
    async with asyncio.timeout(20):
        await lost
    healthy, message = await health_of(engine)
    assert not healthy
    assert "core is gone" in message


@pytest.mark.parametrize("request_ids", [["unknown"], [], ["unknown", "unknown", ""]])
async def test_an_abort_of_nobody_is_fine(engine: VllmEngineStub, core: FakeCore, request_ids: list[str]) -> None:
    """Once and twice, and what runs goes on."""
    stream = engine.Generate(asks())
    core_id = (await core.receive_add()).request_id
    for _ in range(2):
        assert await engine.Abort(pb.AbortRequest(request_ids=request_ids)) == pb.AbortResponse()
    say(core, core_id, b"ok")
    assert text_of(await messages_of(stream)) == b"ok"


async def test_flush_asks_the_core_once(engine: VllmEngineStub, core: FakeCore) -> None:
    """Without a time-out it says what the core said."""
    for done, told in (
        (True, "KV prefix cache flushed"),
        (False, "KV prefix cache reset refused; requests may be in flight"),
    ):
        flushing = engine.FlushCache(FlushCacheRequest())
        call = await core.receive_call()
        assert (call.method, call.args) == ("reset_prefix_cache", [False, False])
        core.answer(call, done)
        assert await flushing == common_pb2.FlushCacheResponse(success=done, message=told)


async def test_flush_tries_until_it_is_done(engine: VllmEngineStub, core: FakeCore) -> None:
    """With a time-out."""
    flushing = engine.FlushCache(FlushCacheRequest(timeout_s=60))
    for done in (False, False, True):
        core.answer(await core.receive_call(), done)
    assert (await flushing).success


async def test_flush_gives_up_in_time(engine: VllmEngineStub, core: FakeCore) -> None:
    """Refused again and again, or not answered at all: DEADLINE_EXCEEDED."""
    flushing = asyncio.ensure_future(error_of(engine.FlushCache(FlushCacheRequest(timeout_s=0.3))))
    core.answer(await core.receive_call(), False)
    error = await flushing
    assert (error.code, error.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "FLUSH_TIMED_OUT")


@pytest.mark.parametrize("timeout_s", [-1, float("nan"), float("inf")])
async def test_flush_needs_a_time_that_is_one(engine: VllmEngineStub, timeout_s: float) -> None:
    error = await error_of(engine.FlushCache(FlushCacheRequest(timeout_s=timeout_s)))
    assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["timeout_s"])


async def test_flush_that_fails_is_the_servers_fault(
    engine: VllmEngineStub, core: FakeCore, caplog: pytest.LogCaptureFixture
) -> None:
    """INTERNAL; the log has what the core said."""
    flushing = asyncio.ensure_future(error_of(engine.FlushCache(FlushCacheRequest())))
    core.answer(await core.receive_call(), failure="the moon is full")
    assert (await flushing).code is grpc.StatusCode.INTERNAL
    assert "the moon is full" in caplog.text


async def test_flush_of_a_core_that_dies_is_unavailable(engine: VllmEngineStub, core: FakeCore) -> None:
    """At once."""
    flushing = asyncio.ensure_future(error_of(engine.FlushCache(FlushCacheRequest(timeout_s=60))))
    await core.receive_call()
    core.report_death()
    assert (await flushing).code is grpc.StatusCode.UNAVAILABLE


async def test_profiling(engine: VllmEngineStub, core: FakeCore) -> None:
    """Starts and stops the core's profiler; a core that has none says so."""
    for call, started in (
        (partial(engine.StartProfile, common_pb2.StartProfileRequest()), True),
        (partial(engine.StopProfile, common_pb2.StopProfileRequest()), False),
    ):
        request = call()
        asked = await core.receive_call()
        assert (asked.method, asked.args) == ("profile", [started, None])
        core.answer(asked)
        assert (await request).success
    failing = asyncio.ensure_future(error_of(engine.StartProfile(common_pb2.StartProfileRequest())))
    core.answer(await core.receive_call(), failure="no profiler")
    error = await failing
    assert (error.code, error.message) == (grpc.StatusCode.FAILED_PRECONDITION, "no profiler")


async def test_the_profiler_takes_no_options(engine: VllmEngineStub) -> None:
    """They are of the engine's launch: each that is set is named."""
    given = common_pb2.StartProfileRequest(output_dir="/tmp", num_steps=0, activities=["CPU"], profile_by_stage=True)
    error = await error_of(engine.StartProfile(given))
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert set(error.fields) == {"output_dir", "num_steps", "activities", "profile_by_stage"}


async def test_the_tokenizer_is_handed_out(engine: VllmEngineStub) -> None:
    """What is in the zip is the archive's matter; here it arrives."""
    chunks = [chunk async for chunk in engine.GetTokenizer(common_pb2.GetTokenizerRequest())]
    assert chunks[0].data.startswith(b"PK")
    assert [bool(chunk.sha256) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_probes_for_other_contracts_are_no_errors(
    channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    """A router asks a new server for five contracts: UNIMPLEMENTED tells it which this is, and nothing is counted."""
    for probe in sorted(ROUTER_PROBES):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await channel.unary_unary(probe)(b"")
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert caplog.text == ""
    assert len(ROUTER_PROBES) == 4
