"""A gateway of several processes, as its clients and operators see it."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from smg_grpc_proto.generated import vllm_engine_pb2
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineStub

from service.config import GatewayConfig, WorkersConfig
from service.models import ModelFiles
from service.server import GatewayServer
from service.workers.process import WorkerError
from sluicegate.v1 import control_service_pb2 as control_pb
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.core.data_parallel.lockstep_core import __name__ as lockstep_core
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import FakeCore
from tests.service.gateway_process import GatewayProcess
from tests.service.metrics.scrape import scrape_async

Stream = grpc.aio.UnaryStreamCall[pb.GenerateRequest, pb.GenerateStreamResponse]
_ENDLESS = 1_000_000
_MAX_CONNECTIONS = 64
"""All of these in one of two processes: the kernel would have to draw the same one 63 times."""


@pytest.fixture
async def gateway(byte_model: ModelFiles, short_folder: Path) -> AsyncIterator[GatewayProcess]:
    async with GatewayProcess(byte_model, short_folder, num_workers=2) as started:
        await started.until_ready()
        yield started


@asynccontextmanager
async def stub_in_each(gateway: GatewayProcess) -> AsyncIterator[list[InferenceServiceStub]]:
    """One of the primary and one of the worker."""
    async with channel_to_each(gateway) as channels:
        yield [InferenceServiceStub(channel) for channel in channels]


@asynccontextmanager
async def channel_to_each(gateway: GatewayProcess) -> AsyncIterator[list[grpc.aio.Channel]]:
    """One connection to the primary and one to the worker."""
    address = await gateway.until_ready()
    pids = [gateway.pid, *(worker.pid for worker in gateway.workers())]
    async with AsyncExitStack() as channels:
        found: dict[int, grpc.aio.Channel] = {}
        for _ in range(_MAX_CONNECTIONS):
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = await channels.enter_async_context(grpc.aio.insecure_channel(address, options))
            before = {pid: connections_of(pid, address) for pid in pids}
            await channel.channel_ready()
            await InferenceServiceStub(channel).Tokenize(pb.TokenizeRequest(text="hi"))
            (pid,) = [pid for pid in pids if connections_of(pid, address) > before[pid]]
            found.setdefault(pid, channel)
            if len(found) == len(pids):
                break
        yield [found[pid] for pid in pids]


def connections_of(pid: int, address: str) -> int:
    port = int(address.rpartition(":")[2])
    connections = psutil.Process(pid).net_connections("tcp")
    return sum(found.status == psutil.CONN_ESTABLISHED and found.laddr.port == port for found in connections)


@asynccontextmanager
async def operator_of(gateway: GatewayProcess) -> AsyncIterator[ControlServiceStub]:
    async with grpc.aio.insecure_channel(await gateway.admin_address()) as channel:
        yield ControlServiceStub(channel)


async def until_core_runs(operator: ControlServiceStub, count: int) -> control_pb.Load:
    """The load, as soon as the core runs so many sequences."""
    while (load := (await operator.GetLoad(control_pb.GetLoadRequest())).load).num_running != count:
        pass
    return load


def endless(request_id: str) -> pb.GenerateRequest:
    return pb.GenerateRequest(request_id=request_id, text="hi", sampling_params={"max_tokens": _ENDLESS})


async def ending(stream: Stream) -> "pb.FinishReason.ValueType":
    """How it finishes."""
    while (event := await stream.read()).HasField("delta"):
        pass
    return event.finished.finish_reason


async def text_of(stream: Stream) -> str:
    text = ""
    while (event := await stream.read()).HasField("delta"):
        text += event.delta.text
    return text


async def test_each_process_serves(gateway: GatewayProcess) -> None:
    """Connections are spread over the processes, and each streams from the one core."""
    async with stub_in_each(gateway) as stubs:
        request = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 5})
        answers = await asyncio.gather(*(stub.Generate(request) for stub in stubs))
        assert [answer.usage.num_output_tokens for answer in answers] == [5, 5]


async def test_abort_finds_a_request_wherever_it_is(gateway: GatewayProcess) -> None:
    """Operators need not know which process has it."""
    async with stub_in_each(gateway) as stubs, operator_of(gateway) as operator:
        streams = [stub.GenerateStream(endless(f"r{i}")) for i, stub in enumerate(stubs)]
        for stream in streams:
            assert (await stream.read()).HasField("started")
        aborted = await operator.Abort(control_pb.AbortRequest(request_ids=["r0", "r1", "r2"]))
        assert aborted.num_aborted == 2
        assert [await ending(stream) for stream in streams] == [pb.FINISH_REASON_ABORT] * 2


async def test_signal_drains_every_process(gateway: GatewayProcess) -> None:
    """Streams of all processes finish as they would have, nothing is left, and the exit code is 0."""
    processes = [*gateway.workers(), *gateway.cores()]
    async with stub_in_each(gateway) as stubs:
        request = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 50, "ignore_eos": True})
        streams = [stub.GenerateStream(request) for stub in stubs]
        for stream in streams:
            assert (await stream.read()).HasField("started")
        gateway.send_signal(signal.SIGTERM)
        assert [await ending(stream) for stream in streams] == [pb.FINISH_REASON_LENGTH] * 2
    assert await gateway.exit_code() == 0
    assert gateway.leftovers() == []
    assert not any(process.is_running() for process in processes)


async def test_second_signal_aborts_in_every_process(gateway: GatewayProcess) -> None:
    """What still runs ends with a finished ABORT, wherever it is; the exit code is 0."""
    async with stub_in_each(gateway) as stubs:
        streams = [stub.GenerateStream(endless("")) for stub in stubs]
        for stream in streams:
            assert (await stream.read()).HasField("started")
        gateway.send_signal(signal.SIGTERM)
        await gateway.until_logged("draining")
        gateway.send_signal(signal.SIGINT)
        assert [await ending(stream) for stream in streams] == [pb.FINISH_REASON_ABORT] * 2
    assert await gateway.exit_code() == 0


async def test_killed_worker_is_replaced(gateway: GatewayProcess) -> None:
    """Its streams end UNAVAILABLE and the core drops them; other streams go on; another serves in its place.

    What it had counted, as far as somebody had asked, is not uncounted.
    """
    (worker,) = gateway.workers()
    async with stub_in_each(gateway) as (primary, doomed), operator_of(gateway) as operator:
        finished = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 3, "ignore_eos": True})
        await doomed.Generate(finished)
        streams = [stub.GenerateStream(endless("")) for stub in (primary, doomed)]
        for stream in streams:
            assert (await stream.read()).HasField("started")
        before = await scrape_async(await gateway.metrics_address())
        worker.kill()
        with pytest.raises(grpc.aio.AioRpcError) as lost:
            await ending(streams[1])
        assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
        await gateway.until_logged("(?s)(gateway worker 1 is ready.*){2}")
        assert gateway.workers() != [worker]
        async with stub_in_each(gateway) as (_, successor):
            answer = await successor.Generate(finished)
            assert answer.usage.num_output_tokens == 3
            await until_core_runs(operator, 1)
        after = await scrape_async(await gateway.metrics_address())
        name = "request_success_total"
        assert after.engine(name, finished_reason="length") == before.engine(name, finished_reason="length") + 1
        assert after.engine("generation_tokens_total") > before.engine("generation_tokens_total")
        assert (await streams[0].read()).HasField("delta")


async def test_stuck_worker_is_replaced(byte_model: ModelFiles, short_folder: Path) -> None:
    """One that answers nothing is killed, and another takes its place."""
    gateway = GatewayProcess(byte_model, short_folder, num_workers=2, worker_terms={"stuck_timeout_s": 3.0})
    async with gateway, operator_of(gateway) as operator:
        await gateway.until_ready()
        (worker,) = gateway.workers()
        worker.suspend()
        await gateway.until_logged("gateway worker 1 is stuck")
        await gateway.until_logged("(?s)(gateway worker 1 is ready.*){2}")
        assert gateway.workers() != [worker]
        await operator.GetLoad(control_pb.GetLoadRequest())


async def test_worker_that_hangs_does_not_hold_up_the_end(byte_model: ModelFiles, short_folder: Path) -> None:
    """The drain time-out is for all processes; whoever does not answer by then is killed."""
    terms = {"stuck_timeout_s": 3600.0}
    async with GatewayProcess(
        byte_model, short_folder, num_workers=2, worker_terms=terms, drain_timeout_s=0
    ) as gateway:
        await gateway.until_ready()
        gateway.workers()[0].suspend()
        gateway.send_signal(signal.SIGTERM)
        assert await gateway.exit_code() == 0
        assert "drained" in gateway.log
        assert gateway.leftovers() == []


async def test_worker_that_cannot_be_kept_ends_the_gateway(byte_model: ModelFiles, short_folder: Path) -> None:
    """Rather than that fewer serve than were asked for: what others run is finished, and the exit code is 1."""
    gateway = GatewayProcess(byte_model, short_folder, num_workers=2, worker_terms={"max_restarts": 0})
    async with gateway, stub_in_each(gateway) as (stub, _):
        request = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 50, "ignore_eos": True})
        stream = stub.GenerateStream(request)
        assert (await stream.read()).HasField("started")
        gateway.workers()[0].kill()
        assert await ending(stream) == pb.FINISH_REASON_LENGTH
        assert await gateway.exit_code() == 1
        assert "the gateway cannot go on: gateway worker 1, pid " in gateway.log
        assert gateway.leftovers() == []


async def test_worker_that_fails_to_start(gateway_config: GatewayConfig, core: FakeCore) -> None:
    """The start fails, and says how it ended."""
    command = sys.executable, "-c", "raise SystemExit('out of luck')"
    server = GatewayServer(replace(gateway_config, workers=WorkersConfig(2, command)))
    try:
        with pytest.raises(WorkerError, match="gateway worker 1 ended with exit code 1"):
            await asyncio.gather(server.start(), core.shake_hands(gateway_config.core.handshake_address))
    finally:
        await server.stop()


async def test_nobody_outlives_a_killed_primary(gateway: GatewayProcess) -> None:
    """Workers and cores end by themselves, whatever runs."""
    processes = [*gateway.workers(), *gateway.cores()]
    async with stub_in_each(gateway) as stubs:
        streams = [stub.GenerateStream(endless("")) for stub in stubs]
        for stream in streams:
            assert (await stream.read()).HasField("started")
        gateway.send_signal(signal.SIGKILL)
        _, alive = await asyncio.to_thread(psutil.wait_procs, processes, 30)
        assert not alive


async def test_counts_of_all_processes_add_up(gateway: GatewayProcess) -> None:
    """A hundred requests are a hundred in /metrics and in GetLoad, to the token, however many processes had some."""
    async with stub_in_each(gateway) as stubs, operator_of(gateway) as operator:
        params = {"max_tokens": 7, "ignore_eos": True}
        calls = [stubs[i % 2].Generate(pb.GenerateRequest(text="hi", sampling_params=params)) for i in range(100)]
        await asyncio.gather(*calls)
        counts = await scrape_async(await gateway.metrics_address())
        load = (await operator.GetLoad(control_pb.GetLoadRequest())).load
    assert counts.engine("request_success_total", finished_reason="length") == 100
    assert counts.engine("generation_tokens_total") == 700
    assert counts.engine("request_generation_tokens_count") == 100
    assert counts.engine("request_generation_tokens_sum") == 700
    assert counts.engine("prompt_tokens_total") == counts.engine("request_prompt_tokens_sum") == 200
    method = "/sluicegate.v1.InferenceService/Generate"
    assert counts.value("sluicegate:rpcs_total", method=method, code="OK") == 100
    assert counts.value("sluicegate:rpc_duration_seconds_count", method=method) == 100
    assert counts.value("sluicegate:live_requests") == 0
    assert (load.num_output_tokens, load.num_prompt_tokens, load.num_requests) == (700, 200, 0)
    assert sum(load.inter_token_latency.counts) == 600
    assert (load.ranks[0].num_output_tokens, load.ranks[0].num_sequences) == (700, 0)


async def test_what_the_core_does_is_told_once(gateway: GatewayProcess) -> None:
    """The core tells one process alone how busy it is; /metrics and GetLoad have it, not twice and not too late."""
    async with stub_in_each(gateway) as stubs, operator_of(gateway) as operator:
        streams = [stub.GenerateStream(endless("")) for stub in stubs]
        for stream in streams:
            assert (await stream.read()).HasField("started")
        load = await until_core_runs(operator, 2)
        assert (load.num_requests, load.ranks[0].num_sequences) == (2, 2)
        counts = await scrape_async(await gateway.metrics_address())
        assert counts.engine("num_requests_running") == 2
        assert counts.value("sluicegate:live_requests") == 2
        for stream in streams:
            stream.cancel()
        await until_core_runs(operator, 0)


async def test_any_process_aborts_for_a_router(gateway: GatewayProcess) -> None:
    """A router's Abort comes to one process, and ends a request of another."""
    async with AsyncExitStack() as stack:
        channels = await stack.enter_async_context(channel_to_each(gateway))
        for here, there in (channels, channels[::-1]):
            stream = InferenceServiceStub(here).GenerateStream(endless("r"))
            assert (await stream.read()).HasField("started")
            await VllmEngineStub(there).Abort(vllm_engine_pb2.AbortRequest(request_ids=["r"]))
            assert await ending(stream) == pb.FINISH_REASON_ABORT


async def test_adapters_are_the_same_everywhere(gateway: GatewayProcess) -> None:
    """When LoadLora returns every process serves the adapter, when UnloadLora does none; a new process has them too."""
    adapted = pb.GenerateRequest(text="hi", lora_name="poet", sampling_params={"max_tokens": 1})
    async with operator_of(gateway) as operator:
        await operator.LoadLora(control_pb.LoadLoraRequest(name="poet", path="/poet"))
        (worker,) = gateway.workers()
        worker.kill()
        await gateway.until_logged("(?s)(gateway worker 1 is ready.*){2}")
        async with stub_in_each(gateway) as stubs:
            for stub in stubs:
                await stub.Generate(adapted)
            await operator.UnloadLora(control_pb.UnloadLoraRequest(name="poet"))
            for stub in stubs:
                assert (await error_of(stub.Generate(adapted))).code is grpc.StatusCode.NOT_FOUND


async def test_sleep_is_told_everywhere(gateway: GatewayProcess) -> None:
    """Whichever process is asked says NOT_SERVING while the cores sleep."""
    async with channel_to_each(gateway) as channels, operator_of(gateway) as operator:
        watches = [HealthStub(channel).Watch(health_pb2.HealthCheckRequest()) for channel in channels]
        assert [(await watch.read()).status for watch in watches] == [health_pb2.HealthCheckResponse.SERVING] * 2
        await operator.Sleep(control_pb.SleepRequest())
        assert [(await watch.read()).status for watch in watches] == [health_pb2.HealthCheckResponse.NOT_SERVING] * 2
        await operator.WakeUp(control_pb.WakeUpRequest())
        assert [(await watch.read()).status for watch in watches] == [health_pb2.HealthCheckResponse.SERVING] * 2


async def test_terminated_worker_finishes_first(gateway: GatewayProcess) -> None:
    """SIGTERM to a worker alone: its streams end as they would have, another takes its place, nothing is uncounted."""
    (worker,) = gateway.workers()
    async with stub_in_each(gateway) as (_, stub):
        request = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 50, "ignore_eos": True})
        stream = stub.GenerateStream(request)
        assert (await stream.read()).HasField("started")
        worker.terminate()
        assert await ending(stream) == pb.FINISH_REASON_LENGTH
        await gateway.until_logged("(?s)(gateway worker 1 is ready.*){2}")
        async with stub_in_each(gateway) as stubs:
            await asyncio.gather(*(stub.Generate(request) for stub in stubs))
        async with operator_of(gateway) as operator:
            load = (await operator.GetLoad(control_pb.GetLoadRequest())).load
        assert (load.num_output_tokens, load.num_requests) == (150, 0)
        counts = await scrape_async(await gateway.metrics_address())
        assert counts.engine("generation_tokens_total") == 150


async def test_every_process_goes_on_with_another_core(byte_model: ModelFiles, short_folder: Path) -> None:
    """A core that is killed is replaced, and the streams of all processes get their tokens as if it had not been."""
    gateway = GatewayProcess(byte_model, short_folder, num_workers=2, max_restarts=3)
    async with gateway:
        async with stub_in_each(gateway) as stubs:
            await check_core_replacement(gateway, stubs)
        gateway.workers()[0].kill()
        await gateway.until_logged("(?s)(gateway worker 1 is ready.*){2}")
        async with stub_in_each(gateway) as stubs:
            await check_core_replacement(gateway, stubs)


async def check_core_replacement(gateway: GatewayProcess, stubs: list[InferenceServiceStub]) -> None:
    params = {"max_tokens": 100, "ignore_eos": True, "temperature": 0}
    streams = [stub.GenerateStream(pb.GenerateRequest(text="hi", sampling_params=params)) for stub in stubs]
    for stream in streams:
        assert (await stream.read()).HasField("started")
    gateway.cores()[-1].kill()
    first, second = [await text_of(stream) for stream in streams]
    assert first == second
    assert len(first) == 100


async def test_every_process_balances_over_the_ranks(byte_model: ModelFiles, short_folder: Path) -> None:
    """Neither takes a core for busier than it is because it hears less of it."""
    gateway = GatewayProcess(byte_model, short_folder, num_workers=2, data_parallel_size=2)
    async with gateway, stub_in_each(gateway) as stubs, operator_of(gateway) as operator:
        streams = []
        for _ in range(6):
            for stub in stubs:
                streams.append(stub.GenerateStream(endless("")))
                assert (await streams[-1].read()).HasField("started")
        load = await until_core_runs(operator, 12)
        assert load.num_requests == sum(rank.num_sequences for rank in load.ranks) == 12
        assert (await operator.ResetPrefixCache(control_pb.ResetPrefixCacheRequest())).success
        assert all(rank.num_sequences >= 3 for rank in load.ranks)


async def test_every_process_wakes_cores_that_step_together(byte_model: ModelFiles, short_folder: Path) -> None:
    """A request from any of them, at either rank, completes, one after the other and all at once."""
    core = [sys.executable, "-m", lockstep_core]
    gateway = GatewayProcess(byte_model, short_folder, core, num_workers=2, data_parallel_size=2, lockstep=True)
    async with gateway, stub_in_each(gateway) as stubs:
        params = {"max_tokens": 5, "ignore_eos": True}
        requests = [pb.GenerateRequest(text="hi", sampling_params=params, data_parallel_rank=rank) for rank in (0, 1)]
        for stub in stubs * 2:
            for request in requests:
                assert (await stub.Generate(request, timeout=60)).usage.num_output_tokens == 5
        await asyncio.gather(*(stub.Generate(request, timeout=60) for stub in stubs for request in requests))


async def test_limits_are_those_of_all_processes(byte_model: ModelFiles, short_folder: Path) -> None:
    """What one process has taken on leaves less room in the other."""
    gateway = GatewayProcess(byte_model, short_folder, num_workers=2, max_queued_requests=3)
    async with gateway, stub_in_each(gateway) as stubs:
        streams = [stub.GenerateStream(endless("")) for stub in (*stubs, stubs[0])]
        for stream in streams:
            assert (await stream.read()).HasField("started")
        for stub in stubs:
            error = await error_of(stub.Generate(endless("")))
            assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "3 of at most 3 sequences" in error.message
