"""A gateway of several processes, as its clients and operators see it."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import psutil
import pytest

from service.models import ModelFiles
from sluicegate.v1 import control_service_pb2 as control_pb
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.gateway_process import GatewayProcess

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
    """One connection to the primary and one to the worker."""
    address = await gateway.until_ready()
    pids = [gateway.pid, *(worker.pid for worker in gateway.workers())]
    async with AsyncExitStack() as channels:
        found: dict[int, InferenceServiceStub] = {}
        for _ in range(_MAX_CONNECTIONS):
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = await channels.enter_async_context(grpc.aio.insecure_channel(address, options))
            before = {pid: connections_of(pid, address) for pid in pids}
            await channel.channel_ready()
            stub = InferenceServiceStub(channel)
            await stub.Tokenize(pb.TokenizeRequest(text="hi"))
            (pid,) = [pid for pid in pids if connections_of(pid, address) > before[pid]]
            found.setdefault(pid, stub)
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


def endless(request_id: str) -> pb.GenerateRequest:
    return pb.GenerateRequest(request_id=request_id, text="hi", sampling_params={"max_tokens": _ENDLESS})


async def ending(stream: Stream) -> "pb.FinishReason.ValueType":
    """How it finishes."""
    while (event := await stream.read()).HasField("delta"):
        pass
    return event.finished.finish_reason


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
