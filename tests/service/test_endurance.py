"""A gateway process and its core: of many requests nothing stays, and without any they do nothing."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import psutil

from bench.null_core import __name__ as null_core
from service.models import ModelFiles
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.control_service_pb2 import GetLoadRequest
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from sluicegate_client import AsyncClient
from tests.service.gateway_process import PACED_CORE, GatewayProcess

FAST_CORE = [sys.executable, "-m", null_core, "--token-ids", "97,98,99"]
NUM_AT_ONCE = 100
IDLE_S = 3
MAX_GROWTH_BYTES = 64 << 20
"""After a quarter of the calls. The allocator alone makes up for half of it, and gives it back some calls later."""


class Server:
    """A gateway and its core, with what they hold."""

    def __init__(
        self, address: str, gateway: GatewayProcess, public: grpc.aio.Channel, admin: grpc.aio.Channel
    ) -> None:
        self.address = address
        self.inference = InferenceServiceStub(public)
        self._control = ControlServiceStub(admin)
        self._processes = [psutil.Process(gateway.pid), gateway.core()]

    def num_bytes(self) -> list[int]:
        return [process.memory_info().rss for process in self._processes]

    def processor_seconds(self) -> list[float]:
        return [sum(process.cpu_times()[:2]) for process in self._processes]

    async def until_idle(self) -> None:
        """Return when no table holds a request: neither the gateway's nor the core's."""
        async with asyncio.timeout(60):
            while True:
                load = (await self._control.GetLoad(GetLoadRequest())).load
                if load.num_requests == load.num_running == load.num_waiting == 0:
                    return


@asynccontextmanager
async def serving(model: ModelFiles, folder: Path, core: list[str]) -> AsyncIterator[Server]:
    async with GatewayProcess(model, folder, core) as gateway:
        address = await gateway.until_ready()
        async with (
            grpc.aio.insecure_channel(address) as public,
            grpc.aio.insecure_channel(await gateway.admin_address()) as admin,
        ):
            yield Server(address, gateway, public, admin)


async def repeat(call: Callable[[], Awaitable[object]], count: int) -> None:
    """Some at once."""

    async def one_after_another() -> None:
        for _ in range(count // NUM_AT_ONCE):
            await call()

    await asyncio.gather(*(one_after_another() for _ in range(NUM_AT_ONCE)))


async def grows_no_further(server: Server, call: Callable[[], Awaitable[object]], count: int) -> None:
    await repeat(call, count // 4)
    await server.until_idle()
    settled = server.num_bytes()
    await repeat(call, count - count // 4)
    await server.until_idle()
    in_the_end = server.num_bytes()
    for before, after in zip(settled, in_the_end, strict=True):
        assert after - before < MAX_GROWTH_BYTES


async def test_cancelled_while_it_is_submitted(byte_model: ModelFiles, short_folder: Path) -> None:
    """10,000 calls, each cancelled within 2 ms of its start: nothing is tracked in the end, and memory is flat."""
    chance = random.Random(3)
    request = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 1_000_000, "ignore_eos": True})

    async with serving(byte_model, short_folder, PACED_CORE) as server:

        async def start_and_cancel() -> None:
            call = server.inference.Generate(request)
            await asyncio.sleep(chance.random() * 0.002)
            call.cancel()

        await grows_no_further(server, start_and_cancel, 10_000)


async def test_short_requests_and_long_streams(byte_model: ModelFiles, short_folder: Path) -> None:
    """20,000 requests of 5,000 calls, 200 streams of 2,000 tokens: memory reaches a plateau, the tables are empty."""
    short = pb.GenerateRequest(text="hi", sampling_params={"n": 4, "temperature": 1, "max_tokens": 1})
    long = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 2000, "ignore_eos": True})

    async with serving(byte_model, short_folder, FAST_CORE) as server:

        async def answer() -> None:
            assert len((await server.inference.Generate(short)).outputs) == 4

        async def stream() -> None:
            events = [event async for event in server.inference.GenerateStream(long)]
            assert events[-1].finished.usage.num_output_tokens == 2000

        await repeat(stream, 200)
        await grows_no_further(server, answer, 5000)


async def test_requests_of_one_stream(byte_model: ModelFiles, short_folder: Path) -> None:
    """4,000 requests of one multiplexed stream, half of them given up at random: it holds none of them in the end."""
    chance = random.Random(5)
    async with (
        serving(byte_model, short_folder, FAST_CORE) as server,
        AsyncClient(server.address) as client,
        client.multiplexed() as session,
    ):

        async def generate_or_leave() -> None:
            async with session.stream("hi", max_tokens=30, ignore_eos=True) as stream:
                leaves_after, num_tokens = chance.randrange(60), 0
                async for delta in stream:
                    num_tokens += len(delta.token_ids)
                    if num_tokens > leaves_after:
                        return
            assert num_tokens == 30

        await grows_no_further(server, generate_or_leave, 4000)


async def test_idle_costs_nothing(byte_model: ModelFiles, short_folder: Path) -> None:
    """After a request neither process uses more than 2 % of a processor."""
    request = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 1})
    async with serving(byte_model, short_folder, FAST_CORE) as server:
        await server.inference.Generate(request)
        await server.until_idle()
        before = server.processor_seconds()
        await asyncio.sleep(IDLE_S)
        for start, end in zip(before, server.processor_seconds(), strict=True):
            assert end - start < 0.02 * IDLE_S
