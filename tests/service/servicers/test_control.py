"""ControlService on the admin address, with a scripted core."""

import asyncio
from typing import Any, TypeVar

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc

from core.wire.messages import FinishReason
from core.wire.stats import PrefixCacheStats, SchedulerStats
from service.server import GatewayServer
from sluicegate.v1 import control_service_pb2 as pb
from sluicegate.v1 import inference_service_pb2
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import FakeCore

T = TypeVar("T")
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
A_REQUEST = inference_service_pb2.GenerateRequest(request_id="r", text="hi")


@pytest.fixture
def health(channel: grpc.aio.Channel) -> health_pb2_grpc.HealthStub:
    return health_pb2_grpc.HealthStub(channel)


async def status_of(health: health_pb2_grpc.HealthStub) -> int:
    return (await health.Check(health_pb2.HealthCheckRequest(service="readiness"))).status


async def test_server_info(control: ControlServiceStub, gateway: GatewayServer) -> None:
    """GetServerInfo tells the limits of the model and of the core, and the real addresses."""
    info = await control.GetServerInfo(pb.GetServerInfoRequest())
    assert (info.model, info.max_model_len, info.vocab_size) == ("bytes", 1024, 257)
    assert (info.block_size, info.num_kv_blocks, info.dtype) == (16, 101, "float32")
    assert info.max_logprobs == 20
    assert (info.engine_version, info.data_parallel_size) == ("0.25.1", 1)
    assert list(info.grpc_addresses) == gateway.grpc_addresses
    assert info.start_time.seconds > 0


async def test_models(control: ControlServiceStub) -> None:
    """ListModels names the served model."""
    assert (await control.ListModels(pb.ListModelsRequest())).models == [pb.ModelCard(name="bytes", max_model_len=1024)]


async def test_load(control: ControlServiceStub, inference: InferenceServiceStub, core: FakeCore) -> None:
    """GetLoad shows what the core last said, and the requests that the gateway tracks."""
    stream = inference.GenerateStream(A_REQUEST)
    request = await core.receive_add()
    cache = PrefixCacheStats(queries=10, hits=4)
    stats = SchedulerStats(num_running_reqs=1, num_waiting_reqs=2, kv_cache_usage=0.5, prefix_cache_stats=cache)
    core.emit_token(request.request_id, 65)
    core.emit(stats=stats)
    core.emit_token(request.request_id, 66)
    text = ""
    while text != "AB":
        text += (await stream.read()).delta.text
    load = (await control.GetLoad(pb.GetLoadRequest())).load
    assert (load.num_running, load.num_waiting, load.num_requests, load.kv_cache_usage) == (1, 2, 1, 0.5)
    assert (load.num_prefix_cache_queries, load.num_prefix_cache_hits, load.num_kv_blocks) == (10, 4, 101)
    (rank,) = load.ranks
    assert (rank.rank, rank.num_running, rank.num_waiting, rank.num_sequences) == (0, 1, 2, 1)
    assert (rank.kv_cache_usage, rank.num_kv_blocks, rank.is_answering) == (0.5, 101, True)
    assert (rank.num_output_tokens, load.num_output_tokens) == (2, 2)
    assert sum(load.time_to_first_token.counts) == sum(load.inter_token_latency.counts) == 1
    assert len(load.time_to_first_token.counts) == len(load.time_to_first_token.bounds_s) + 1
    assert load.time_to_first_token.sum_s > 0
    stream.cancel()


async def test_watching_the_load(control: ControlServiceStub, gateway: GatewayServer) -> None:
    """WatchLoad reports at every interval and ends when the server stops."""
    watch = control.WatchLoad(pb.WatchLoadRequest(interval=Duration(nanos=100_000_000)))
    async with asyncio.timeout(20):
        for _ in range(3):
            assert (await watch.read()).load.num_kv_blocks == 101
        stopping = asyncio.ensure_future(gateway.stop())
        while await watch.read() is not grpc.aio.EOF:
            pass
        await stopping


@pytest.mark.parametrize("interval", [Duration(nanos=1000), Duration(seconds=3601), Duration(seconds=-1)])
async def test_watch_interval_has_bounds(control: ControlServiceStub, interval: Duration) -> None:
    """An interval out of bounds is INVALID_ARGUMENT and names the field."""
    error = await error_of(control.WatchLoad(pb.WatchLoadRequest(interval=interval)).read())
    assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["interval"])


async def test_abort_ends_the_stream(
    control: ControlServiceStub, inference: InferenceServiceStub, core: FakeCore
) -> None:
    """Abort ends the stream with a finished ABORT, tells the core, and counts live requests only."""
    stream = inference.GenerateStream(A_REQUEST)
    request = await core.receive_add()
    core.emit_token(request.request_id, 65)
    assert (await stream.read()).HasField("started")
    aborted = await control.Abort(pb.AbortRequest(request_ids=["r", "r", "unknown"]))
    assert aborted.num_aborted == 1
    assert (await stream.read()).delta.text == "A"
    assert (await stream.read()).finished.finish_reason == inference_service_pb2.FINISH_REASON_ABORT
    assert await stream.read() is grpc.aio.EOF
    assert await core.receive_abort() == [request.request_id]
    assert (await control.Abort(pb.AbortRequest(request_ids=["r"]))).num_aborted == 0


async def test_drain_waits_and_then_aborts(
    control: ControlServiceStub, inference: InferenceServiceStub, core: FakeCore
) -> None:
    """Drain refuses new requests, aborts what runs longer than the time-out, and leaves the server up."""
    stream = inference.GenerateStream(A_REQUEST)
    await core.receive_add()
    drained = await control.Drain(pb.DrainRequest(timeout=Duration(nanos=1)))
    assert drained.num_aborted == 1
    events = [event async for event in stream]
    assert events[-1].finished.finish_reason == inference_service_pb2.FINISH_REASON_ABORT
    error = await error_of(inference.Generate(A_REQUEST))
    assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    assert 1 <= (error.retry_after_s or 0) <= 2
    assert (await control.GetLoad(pb.GetLoadRequest())).load.num_requests == 0
    assert (await control.Drain(pb.DrainRequest())).num_aborted == 0
    error = await error_of(control.Drain(pb.DrainRequest(timeout=Duration(seconds=-1))))
    assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["timeout"])


async def test_drain_lets_the_running_finish(
    control: ControlServiceStub, inference: InferenceServiceStub, core: FakeCore
) -> None:
    """Drain without a time-out of its own waits for the running request, which ends as it would have."""
    stream = inference.GenerateStream(A_REQUEST)
    request = await core.receive_add()
    drain = asyncio.ensure_future(control.Drain(pb.DrainRequest()))
    while (await error_of(inference.Generate(A_REQUEST))).reason != "DRAINING":
        pass
    core.emit_token(request.request_id, 65, FinishReason.LENGTH)
    events = [event async for event in stream]
    assert events[-1].finished.finish_reason == inference_service_pb2.FINISH_REASON_LENGTH
    assert (await drain).num_aborted == 0


async def test_reset_prefix_cache_asks_the_core(control: ControlServiceStub, core: FakeCore) -> None:
    """ResetPrefixCache is the core's utility call, and its answer."""
    for success in (True, False):
        call = control.ResetPrefixCache(pb.ResetPrefixCacheRequest(reset_running_requests=success))
        asked = asyncio.ensure_future(core.receive_call())
        request = await asked
        assert (request.method, request.args) == ("reset_prefix_cache", [success, False])
        core.answer(request, result=success)
        assert (await call).success is success


async def test_pending_call_fails_when_the_core_dies(control: ControlServiceStub, core: FakeCore) -> None:
    """A call that waits for the core ends UNAVAILABLE at once when the core dies."""
    call = control.ResetPrefixCache(pb.ResetPrefixCacheRequest())
    asked = asyncio.ensure_future(core.receive_call())
    await asked
    core.report_death()
    async with asyncio.timeout(10):
        assert (await error_of(call)).code is grpc.StatusCode.UNAVAILABLE


async def answered(core: FakeCore, call: "grpc.aio.UnaryUnaryCall[Any, T]", *results: Any) -> tuple[T, list[Any]]:
    """The response, and what the core was asked for it: as many calls as there are ``results``."""
    asked = []
    waiting = asyncio.ensure_future(_awaited(call))
    for result in results:
        request = await core.receive_call()
        asked.append((request.method, request.args))
        core.answer(request, result)
    return await waiting, asked


async def _awaited(call: "grpc.aio.UnaryUnaryCall[Any, T]") -> T:
    return await call


@pytest.mark.parametrize(
    ("method", "request_message", "asked"),
    [
        ("PauseGeneration", pb.PauseGenerationRequest(), ("pause_scheduler", ["abort", False])),
        (
            "PauseGeneration",
            pb.PauseGenerationRequest(mode=pb.PAUSE_MODE_KEEP, clear_cache=True),
            ("pause_scheduler", ["keep", True]),
        ),
        ("ResumeGeneration", pb.ResumeGenerationRequest(), ("resume_scheduler", [])),
        ("Sleep", pb.SleepRequest(), ("sleep", [1, "abort"])),
        ("Sleep", pb.SleepRequest(level=0, mode=pb.PAUSE_MODE_WAIT), ("sleep", [0, "wait"])),
        ("StartProfile", pb.StartProfileRequest(prefix="mine"), ("profile", [True, "mine"])),
        ("StartProfile", pb.StartProfileRequest(), ("profile", [True, None])),
        ("StopProfile", pb.StopProfileRequest(), ("profile", [False, None])),
    ],
)
async def test_calls_on_the_engine(
    control: ControlServiceStub, core: FakeCore, method: str, request_message: Any, asked: Any
) -> None:
    """Each is a utility call of the core, in the words of the wire; what is not given has its documented default."""
    _, calls = await answered(core, getattr(control, method)(request_message), None)
    assert calls == [asked]


@pytest.mark.parametrize(
    ("method", "request_message", "field"),
    [
        ("Sleep", pb.SleepRequest(level=3), "level: must be in [0, 2], got 3"),
        ("Sleep", pb.SleepRequest(mode=9), "mode: must be in [0, 3], got 9"),
        ("PauseGeneration", pb.PauseGenerationRequest(mode=9), "mode: must be in [0, 3], got 9"),
        ("WakeUp", pb.WakeUpRequest(tags=["brain"]), "tags: must be of weights, kv_cache, scheduling, got 'brain'"),
        ("StartProfile", pb.StartProfileRequest(prefix="../a"), "prefix: must be at most 100 of"),
    ],
)
async def test_bounds_of_calls_on_the_engine(
    control: ControlServiceStub, method: str, request_message: Any, field: str
) -> None:
    """INVALID_ARGUMENT, with the field, the bound and the value."""
    error = await error_of(getattr(control, method)(request_message))
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert field in error.message


async def test_what_the_core_refuses(control: ControlServiceStub, core: FakeCore) -> None:
    """FAILED_PRECONDITION, with the core's own message, for every call that is the core's."""
    for method, request_message in (
        (control.StopProfile, pb.StopProfileRequest()),
        (control.ResumeGeneration, pb.ResumeGenerationRequest()),
        (control.ResetPrefixCache, pb.ResetPrefixCacheRequest()),
        (control.WakeUp, pb.WakeUpRequest()),
    ):
        failing = asyncio.ensure_future(error_of(method(request_message)))
        core.answer(await core.receive_call(), failure="Call to it method failed: not now")
        error = await failing
        assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "ENGINE_REFUSED")
        assert error.message == "Call to it method failed: not now"


async def test_asleep_is_not_ready(
    control: ControlServiceStub, inference: InferenceServiceStub, core: FakeCore, health: health_pb2_grpc.HealthStub
) -> None:
    """NOT_SERVING from the call of Sleep on; a request is let in and waits; partly awake is not ready either."""
    sleeping = control.Sleep(pb.SleepRequest(level=2))
    asked = await core.receive_call()
    assert await status_of(health) == NOT_SERVING
    core.answer(asked)
    await sleeping
    stream = inference.GenerateStream(A_REQUEST)
    await core.receive_add()
    _, calls = await answered(core, control.WakeUp(pb.WakeUpRequest(tags=["weights"])), None, True)
    assert calls == [("wake_up", [["weights"]]), ("is_sleeping", [])]
    assert await status_of(health) == NOT_SERVING
    _, calls = await answered(core, control.WakeUp(pb.WakeUpRequest()), None, False)
    assert calls == [("wake_up", [None]), ("is_sleeping", [])]
    assert await status_of(health) == SERVING
    stream.cancel()


async def test_a_sleep_that_fails_leaves_it_ready(
    control: ControlServiceStub, core: FakeCore, health: health_pb2_grpc.HealthStub
) -> None:
    """If the core says that it does not sleep."""
    failing = asyncio.ensure_future(error_of(control.Sleep(pb.SleepRequest())))
    core.answer(await core.receive_call(), failure="resumed")
    core.answer(await core.receive_call(), result=False)
    assert (await failing).code is grpc.StatusCode.FAILED_PRECONDITION
    assert await status_of(health) == SERVING


async def test_waking_goes_on_when_the_caller_leaves(
    control: ControlServiceStub, core: FakeCore, health: health_pb2_grpc.HealthStub
) -> None:
    """Readiness follows the core, not the patience of whoever woke it."""
    await answered(core, control.Sleep(pb.SleepRequest()), None)
    waking = control.WakeUp(pb.WakeUpRequest())
    asked = await core.receive_call()
    waking.cancel()
    core.answer(asked)
    core.answer(await core.receive_call(), result=False)
    watch = health.Watch(health_pb2.HealthCheckRequest())
    while (await watch.read()).status != SERVING:
        pass
    watch.cancel()


async def test_resumed_is_ready(
    control: ControlServiceStub, core: FakeCore, health: health_pb2_grpc.HealthStub
) -> None:
    """Also if it was paused when it woke, which the core calls asleep."""
    await answered(core, control.Sleep(pb.SleepRequest()), None)
    await answered(core, control.WakeUp(pb.WakeUpRequest()), None, True)
    assert await status_of(health) == NOT_SERVING
    await answered(core, control.ResumeGeneration(pb.ResumeGenerationRequest()), None)
    assert await status_of(health) == SERVING


async def test_a_later_sleep_outlasts_a_wake_up(
    control: ControlServiceStub, core: FakeCore, health: health_pb2_grpc.HealthStub
) -> None:
    """What the core answers to the wake-up is of before the sleep."""
    waking = asyncio.ensure_future(_awaited(control.WakeUp(pb.WakeUpRequest())))
    core.answer(await core.receive_call())
    is_sleeping = await core.receive_call()
    sleeping = asyncio.ensure_future(_awaited(control.Sleep(pb.SleepRequest())))
    sleep = await core.receive_call()
    core.answer(is_sleeping, result=False)
    core.answer(sleep)
    await asyncio.gather(waking, sleeping)
    assert await status_of(health) == NOT_SERVING


async def test_paused_is_ready(control: ControlServiceStub, core: FakeCore, health: health_pb2_grpc.HealthStub) -> None:
    """By PauseGeneration or by Sleep at level 0: requests queue."""
    await answered(core, control.PauseGeneration(pb.PauseGenerationRequest()), None)
    await answered(core, control.Sleep(pb.SleepRequest(level=0)), None)
    assert await status_of(health) == SERVING
