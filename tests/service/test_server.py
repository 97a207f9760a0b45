"""The gateway as a process with a core process under it: start, drain, death, and what they leave behind."""

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from core.wire.messages import EngineCoreOutput, FinishReason
from service.models import ModelFiles
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.control_service_pb2 import AbortRequest, DrainRequest
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service import parting_core
from tests.service.errors_of_calls import CallError, error_of, parsed
from tests.service.fake_core import FakeCore
from tests.service.gateway_process import PACED_CORE, GatewayProcess

PATIENT_CORE = [*PACED_CORE, "--shutdown-timeout", "300"]
_TWO = {"max_tokens": 2, "ignore_eos": True}
ENDLESS = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 1_000_000, "ignore_eos": True})
Events = list[pb.GenerateStreamResponse]


@asynccontextmanager
async def stub_of(address: str) -> AsyncIterator[InferenceServiceStub]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield InferenceServiceStub(channel)


def start_streams(stub: InferenceServiceStub, num_tokens: int, count: int = 4) -> "list[asyncio.Task[Events]]":
    request = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": num_tokens, "ignore_eos": True})
    return [asyncio.ensure_future(events_of(stub, request)) for _ in range(count)]


async def events_of(stub: InferenceServiceStub, request: pb.GenerateRequest) -> Events:
    return [event async for event in stub.GenerateStream(request)]


def own_connection(address: str, number: int) -> grpc.aio.Channel:
    """Channels with the same options would share one."""
    return grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1), ("number", number)])


async def refusal_of(stub: InferenceServiceStub) -> CallError | None:
    """Why a short call is not served, or None if it is."""
    try:
        await stub.Generate(pb.GenerateRequest(text="hi", sampling_params=_TWO))
    except grpc.aio.AioRpcError as error:
        return parsed(error)
    return None


async def until_running(stub: InferenceServiceStub) -> None:
    """Streams on the same connection that started earlier run by the time one more has run."""
    await events_of(stub, pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 2}))


def assert_gone(process: psutil.Process) -> None:
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, f"{process} lives"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_signal_lets_streams_finish(byte_model: ModelFiles, short_folder: Path, number: signal.Signals) -> None:
    """Running streams finish as they would have, new calls get UNAVAILABLE, the exit code is 0, and nothing is left."""
    handshake_address = f"ipc://{short_folder}/handshake"
    folder = short_folder / "tmp"
    folder.mkdir()
    async with GatewayProcess(byte_model, folder, [handshake_address]) as gateway, FakeCore() as core:
        await gateway.until_logged("waiting for a core")
        await core.shake_hands(handshake_address)
        address = await gateway.until_ready()
        async with stub_of(address) as stub, grpc.aio.insecure_channel(address) as channel:
            streams = start_streams(stub, num_tokens=200)
            ids = [(await core.receive_add()).request_id for _ in streams]
            watch = HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            gateway.send_signal(number)
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            error = await error_of(stub.Generate(pb.GenerateRequest(text="hi")))
            assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
            assert 1 <= (error.retry_after_s or 0) <= 2
            core.emit(*(EngineCoreOutput(i, [97] * 200, finish_reason=FinishReason.LENGTH) for i in ids))
            for events in await asyncio.gather(*streams):
                assert events[-1].finished.finish_reason == pb.FINISH_REASON_LENGTH
                assert events[-1].finished.usage.num_output_tokens == 200
        assert await gateway.exit_code() == 0
        assert gateway.leftovers() == []


@pytest.mark.parametrize("signals", [1, 2])
async def test_what_outlasts_the_drain_is_aborted(byte_model: ModelFiles, short_folder: Path, signals: int) -> None:
    """Streams that outlast the drain time-out, or a second signal, end with a finished ABORT; exit code 0."""
    drain_timeout_s = 0.2 if signals == 1 else 300
    async with GatewayProcess(byte_model, short_folder, drain_timeout_s=drain_timeout_s) as gateway:
        async with stub_of(await gateway.until_ready()) as stub:
            streams = start_streams(stub, num_tokens=1_000_000)
            await until_running(stub)
            gateway.send_signal(signal.SIGTERM)
            if signals == 2:
                await gateway.until_logged("draining")
                gateway.send_signal(signal.SIGINT)
            for events in await asyncio.gather(*streams):
                assert events[-1].finished.finish_reason == pb.FINISH_REASON_ABORT
        assert await gateway.exit_code() == 0
        assert gateway.leftovers() == []


@pytest.mark.parametrize("num_workers", [1, 2])
async def test_a_lame_duck_serves_those_who_have_not_noticed(
    byte_model: ModelFiles, short_folder: Path, num_workers: int
) -> None:
    """For its time it says NOT_SERVING in every process and takes requests; a second signal aborts them and ends it."""
    gateway = GatewayProcess(byte_model, short_folder, lame_duck_s=300, num_workers=num_workers)
    async with gateway:
        address = await gateway.until_ready()
        async with AsyncExitStack() as stack:
            # As many connections as it takes for each process to have some.
            stubs = [await stack.enter_async_context(own_connection(address, n)) for n in range(8)]
            watches = [HealthStub(channel).Watch(health_pb2.HealthCheckRequest()) for channel in stubs]
            for watch in watches:
                assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            gateway.send_signal(signal.SIGTERM)
            for watch in watches:
                assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            for channel in stubs:
                request = pb.GenerateRequest(text="hi", sampling_params=_TWO)
                events = await events_of(InferenceServiceStub(channel), request)
                assert events[-1].finished.finish_reason == pb.FINISH_REASON_LENGTH
            running = [InferenceServiceStub(channel).GenerateStream(ENDLESS) for channel in stubs]
            for stream in running:
                assert (await stream.read()).HasField("started")
            gateway.send_signal(signal.SIGTERM)
            for stream in running:
                while (event := await stream.read()).HasField("delta"):
                    pass
                assert event.finished.finish_reason == pb.FINISH_REASON_ABORT
            assert await gateway.exit_code() == 0
        assert gateway.leftovers() == []


async def test_a_lame_duck_whose_core_dies_ends(byte_model: ModelFiles, short_folder: Path) -> None:
    """It has nothing to serve calls with, so that its time is over; the exit code says that the core was lost."""
    async with GatewayProcess(byte_model, short_folder, lame_duck_s=300) as gateway:
        await gateway.until_ready()
        gateway.send_signal(signal.SIGTERM)
        await gateway.until_logged("new requests are served for another 300 s")
        gateway.core().kill()
        assert await gateway.exit_code() == 1


@pytest.mark.parametrize("drain_first", [True, False])
async def test_a_lame_duck_that_is_drained_ends(byte_model: ModelFiles, short_folder: Path, drain_first: bool) -> None:
    """Whether an operator calls Drain before the signal or after it: calls are refused, so nobody need wait."""
    async with GatewayProcess(byte_model, short_folder, lame_duck_s=300) as gateway:
        await gateway.until_ready()
        async with grpc.aio.insecure_channel(await gateway.admin_address()) as channel:
            if drain_first:
                await ControlServiceStub(channel).Drain(DrainRequest())
                gateway.send_signal(signal.SIGTERM)
            else:
                gateway.send_signal(signal.SIGTERM)
                await gateway.until_logged("new requests are served for another 300 s")
                await ControlServiceStub(channel).Drain(DrainRequest())
            assert await gateway.exit_code() == 0


async def test_a_lame_duck_drains_in_the_end(byte_model: ModelFiles, short_folder: Path) -> None:
    """When its time is over new calls are refused, and what runs may still end."""
    async with GatewayProcess(byte_model, short_folder, lame_duck_s=0.1) as gateway:
        async with stub_of(await gateway.until_ready()) as stub:
            streams = start_streams(stub, num_tokens=300)
            await until_running(stub)
            gateway.send_signal(signal.SIGTERM)
            while (error := await refusal_of(stub)) is None:
                pass
            assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
            for events in await asyncio.gather(*streams):
                assert events[-1].finished.finish_reason == pb.FINISH_REASON_LENGTH
        assert await gateway.exit_code() == 0


@pytest.mark.parametrize("core_first", [True, False])
async def test_sigterm_to_gateway_and_core(byte_model: ModelFiles, short_folder: Path, core_first: bool) -> None:
    """A service manager may signal both processes: running streams go on all the same, and the exit code is 0."""
    request = pb.GenerateRequest(request_id="r", text="hi", sampling_params={"max_tokens": 1_000_000})
    async with GatewayProcess(byte_model, short_folder, PATIENT_CORE) as gateway:
        async with stub_of(await gateway.until_ready()) as stub:
            core = gateway.core()
            stream = stub.GenerateStream(request)
            assert (await stream.read()).HasField("started")
            for process in (core, gateway) if core_first else (gateway, core):
                process.send_signal(signal.SIGTERM)
            await gateway.until_logged("shutting down, 1 requests")
            await gateway.until_logged("draining")
            for _ in range(50):
                assert (await stream.read()).delta.text
            async with grpc.aio.insecure_channel(await gateway.admin_address()) as channel:
                await ControlServiceStub(channel).Abort(AbortRequest(request_ids=["r"]))
            while (event := await stream.read()).HasField("delta"):
                pass
            assert event.finished.finish_reason == pb.FINISH_REASON_ABORT
        assert await gateway.exit_code() == 0
        assert_gone(core)


@pytest.mark.parametrize("core_first", [True, False])
async def test_sigterm_to_an_idle_gateway_and_its_core(
    byte_model: ModelFiles, short_folder: Path, core_first: bool
) -> None:
    """The core goes at once, which is no loss."""
    async with GatewayProcess(byte_model, short_folder, PATIENT_CORE) as gateway:
        await gateway.until_ready()
        core = gateway.core()
        for process in (core, gateway) if core_first else (gateway, core):
            process.send_signal(signal.SIGTERM)
        assert await gateway.exit_code() == 0, gateway.log
        assert_gone(core)


async def test_core_that_shuts_down_alone_is_lost(byte_model: ModelFiles, short_folder: Path) -> None:
    """Nobody asked the gateway to end: its exit code says that it could not go on."""
    async with GatewayProcess(byte_model, short_folder) as gateway:
        await gateway.until_ready()
        gateway.core().terminate()
        assert await gateway.exit_code() == 1
        assert "the engine core is gone: " in gateway.log


async def test_killed_core_ends_the_service(byte_model: ModelFiles, short_folder: Path) -> None:
    """When the core is killed, running streams are UNAVAILABLE with RetryInfo at once, and the exit code is not 0."""
    async with GatewayProcess(byte_model, short_folder) as gateway:
        address = await gateway.until_ready()
        async with stub_of(address) as stub, grpc.aio.insecure_channel(address) as channel:
            watch = HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            streams = start_streams(stub, num_tokens=1_000_000)
            await until_running(stub)
            gateway.core().kill()
            async with asyncio.timeout(10):
                errors = await asyncio.gather(*(error_of(stream) for stream in streams))
            for error in errors:
                assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "CORE_LOST")
                assert 1 <= (error.retry_after_s or 0) <= 2
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await gateway.exit_code() == 1
        assert "signal 9" in gateway.log
        assert gateway.leftovers() == []


async def test_last_words_of_a_core_are_delivered(byte_model: ModelFiles, short_folder: Path) -> None:
    """A request that the core finished before it ended is finished, however much of it was still on its way."""
    command = [sys.executable, "-m", parting_core.__name__]
    async with GatewayProcess(byte_model, short_folder, command) as gateway:
        async with stub_of(await gateway.until_ready()) as stub:
            (stream,) = start_streams(stub, num_tokens=20_000, count=1)
            finished = (await stream)[-1].finished
            assert finished.finish_reason == pb.FINISH_REASON_LENGTH
            assert finished.usage.num_output_tokens == 20_000
        assert await gateway.exit_code() == 1
        # Whichever is noticed first, its end or that of its connection.
        assert "the engine core is gone: " in gateway.log


async def test_killed_gateway_takes_its_core_along(byte_model: ModelFiles, short_folder: Path) -> None:
    """A gateway that is killed leaves no core behind."""
    async with GatewayProcess(byte_model, short_folder) as gateway:
        await gateway.until_ready()
        core = gateway.core()
        gateway.send_signal(signal.SIGKILL)
        await asyncio.to_thread(psutil.wait_procs, [core], timeout=10)
        assert_gone(core)


async def test_core_that_fails_to_load(byte_model: ModelFiles, short_folder: Path) -> None:
    """A core that exits while loading ends the gateway with a message that names its exit code and what it said."""
    command = [sys.executable, "-c", "import sys; print('Error: no such dtype', file=sys.stderr); sys.exit(3)"]
    async with GatewayProcess(byte_model, short_folder, command) as gateway:
        assert await gateway.exit_code() == 1
        assert "failed to load" in gateway.log
        assert re.search(r"^ERROR:service.server:.*ended with exit code 3: no such dtype$", gateway.log, re.MULTILINE)
        assert "Traceback" not in gateway.log
        assert gateway.leftovers() == []


async def test_core_that_aborts_while_loading(byte_model: ModelFiles, short_folder: Path) -> None:
    """Native code takes no time to say goodbye; the gateway ends at once, and names the signal."""
    command = [sys.executable, "-c", "import os; os.abort()"]
    async with GatewayProcess(byte_model, short_folder, command, load_timeout_s=3600) as gateway:
        assert await gateway.exit_code() == 1
        assert "failed to load: its process" in gateway.log
        assert "ended with signal 6" in gateway.log


async def test_core_command_that_does_not_exist(byte_model: ModelFiles, short_folder: Path) -> None:
    """A core that cannot even be started is named, and ends the gateway."""
    async with GatewayProcess(byte_model, short_folder, ["/nowhere/core"]) as gateway:
        assert await gateway.exit_code() == 1
        assert "cannot start the core /nowhere/core" in gateway.log


SLEEPING_CORE = [sys.executable, "-c", "import signal; signal.pause()"]


async def test_core_that_never_is_ready(byte_model: ModelFiles, short_folder: Path) -> None:
    """A core that is not ready in time is ended, with a message that names the time-out."""
    async with GatewayProcess(byte_model, short_folder, SLEEPING_CORE, load_timeout_s=3) as gateway:
        await gateway.until_logged("core started")
        core = gateway.core()
        assert await gateway.exit_code() == 1
        assert "the core failed to load and is ended: not ready within 3 s" in gateway.log
        assert_gone(core)


async def test_sigterm_while_loading(byte_model: ModelFiles, short_folder: Path) -> None:
    """While the core loads, calls get UNAVAILABLE with RetryInfo; SIGTERM then ends both processes, not with 0."""
    async with GatewayProcess(byte_model, short_folder, SLEEPING_CORE) as gateway:
        address = (await gateway.until_logged(r"listening on (\S+),")).group(1)
        await gateway.until_logged("core started")
        core = gateway.core()
        async with stub_of(address) as stub:
            error = await error_of(stub.Generate(pb.GenerateRequest(text="hi")))
            assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "LOADING")
            assert 1 <= (error.retry_after_s or 0) <= 2
        gateway.send_signal(signal.SIGTERM)
        assert await gateway.exit_code() == 1
        assert_gone(core)
        assert gateway.leftovers() == []


async def test_core_deaf_to_sigterm_is_killed(byte_model: ModelFiles, short_folder: Path) -> None:
    """A core that ignores SIGTERM is killed after a grace time."""
    deaf = [
        sys.executable,
        "-c",
        "import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); signal.pause()",
    ]
    async with GatewayProcess(byte_model, short_folder, deaf) as gateway:
        await gateway.until_logged("deaf")
        core = gateway.core()
        gateway.send_signal(signal.SIGTERM)
        assert await gateway.exit_code() == 1
        assert "killed" in gateway.log
        assert_gone(core)


async def test_port_in_use(byte_model: ModelFiles, short_folder: Path) -> None:
    """An address in use ends the start with a message that names it, and without a core."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with GatewayProcess(byte_model, short_folder, address=address) as gateway:
            assert await gateway.exit_code() == 1
            assert f"cannot listen on {address}" in gateway.log
            assert "core started" not in gateway.log
            assert gateway.leftovers() == []


async def test_a_handshake_belongs_to_who_lives(byte_model: ModelFiles, short_folder: Path) -> None:
    """While a gateway waits at a socket no other gets it; when it was killed the next one does, and sweeps up."""
    address = f"ipc://{short_folder}/handshake"
    folder = short_folder / "tmp"
    folder.mkdir()
    async with GatewayProcess(byte_model, folder, [address]) as first:
        await first.until_logged("waiting for a core")
        async with GatewayProcess(byte_model, folder, [address]) as second:
            assert await second.exit_code() == 1
            assert f"cannot listen at {address}: another process does" in second.log
        first.send_signal(signal.SIGKILL)
        await first.exit_code()
        assert len(first.leftovers()) == 1
        async with GatewayProcess(byte_model, folder, [address]) as third:
            await third.until_logged("waiting for a core")
            assert len(third.leftovers()) == 1
            third.send_signal(signal.SIGTERM)
            assert await third.exit_code() == 1
            assert third.leftovers() == []
    assert os.listdir(short_folder) == ["tmp"]


async def test_temporary_folder_with_a_long_path(byte_model: ModelFiles, short_folder: Path) -> None:
    """Sockets go to /tmp if their paths would be too long in TMPDIR."""
    long_folder = short_folder / ("x" * 100)
    long_folder.mkdir()
    async with GatewayProcess(byte_model, long_folder) as gateway:
        await gateway.until_ready()
        assert gateway.leftovers() == []
        gateway.send_signal(signal.SIGTERM)
        assert await gateway.exit_code() == 0


async def test_broken_model_files(short_folder: Path) -> None:
    """A tokenizer that cannot be read ends the start with one line, whatever is wrong with it."""
    model = short_folder / "model"
    model.mkdir()
    folder = short_folder / "tmp"
    folder.mkdir()
    (model / "tokenizer.json").write_bytes(b"\xff\x00")
    async with GatewayProcess(ModelFiles("m", model, model), folder) as gateway:
        assert await gateway.exit_code() == 1
        assert f"ERROR:service.server:{model}/tokenizer.json" in gateway.log
        assert "Traceback" not in gateway.log
        assert gateway.leftovers() == []


async def test_unix_socket(byte_model: ModelFiles, short_folder: Path) -> None:
    """A unix: address is served, refused to a second server, and removed at the end."""
    address = f"unix:{short_folder}/grpc"
    async with GatewayProcess(byte_model, short_folder, PACED_CORE, address=address) as gateway:
        assert await gateway.until_ready() == address
        async with GatewayProcess(byte_model, short_folder, PACED_CORE, address=address) as second:
            assert await second.exit_code() == 1
            assert f"cannot listen on {address}" in second.log
        async with stub_of(address) as stub:
            request = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 3})
            assert "".join(event.delta.text for event in await events_of(stub, request)) == "cab"
        gateway.send_signal(signal.SIGINT)
        assert await gateway.exit_code() == 0
        assert gateway.leftovers() == []
