"""The watch over cores: stopped, stuck, killed, one of several, and replaced."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import psutil
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from service.config import CoreConfig, GatewayConfig
from service.cores.engines import Engines
from service.models import ModelFiles
from service.server import GatewayServer
from service.supervisor import Supervisor
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.control_service_pb2 import ResetPrefixCacheRequest
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import FakeCore
from tests.service.gateway_process import GatewayProcess

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
ENDLESS = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 1_000_000, "ignore_eos": True})


class Stubs:
    """The services of a gateway process."""

    def __init__(self, public: grpc.aio.Channel, admin: grpc.aio.Channel) -> None:
        self.inference = InferenceServiceStub(public)
        self.health = HealthStub(public)
        self.control = ControlServiceStub(admin)

    async def status_of(self, name: str) -> int:
        request = health_pb2.HealthCheckRequest(service=name)
        return (await self.health.Check(request, timeout=10)).status


@asynccontextmanager
async def stubs_of(gateway: GatewayProcess) -> AsyncIterator[Stubs]:
    address = await gateway.until_ready()
    async with (
        grpc.aio.insecure_channel(address) as public,
        grpc.aio.insecure_channel(await gateway.admin_address()) as admin,
    ):
        yield Stubs(public, admin)


def _wait_until_stopped(process: psutil.Process) -> None:
    while process.status() != psutil.STATUS_STOPPED:
        pass


async def events_of(stream: AsyncIterator[pb.GenerateStreamResponse]) -> list[pb.GenerateStreamResponse]:
    return [event async for event in stream]


async def test_a_stopped_core_makes_the_server_not_ready_until_it_goes_on(
    byte_model: ModelFiles, short_folder: Path
) -> None:
    """Alive it is all along. New calls are refused and may be made again; streams go on when the core does."""
    async with GatewayProcess(byte_model, short_folder, ping_timeout_s=1) as gateway, stubs_of(gateway) as stubs:
        watch = stubs.health.Watch(health_pb2.HealthCheckRequest(service="readiness"))
        stream = stubs.inference.GenerateStream(ENDLESS)
        assert (await stream.read()).HasField("started")
        assert (await watch.read()).status == SERVING
        gateway.core().suspend()
        async with asyncio.timeout(30):
            assert (await watch.read()).status == NOT_SERVING
        assert [await stubs.status_of(name) for name in ("", "readiness", "liveness")] == [
            NOT_SERVING,
            NOT_SERVING,
            SERVING,
        ]
        for call in (stubs.inference.Generate(ENDLESS), stubs.control.ResetPrefixCache(ResetPrefixCacheRequest())):
            error = await error_of(call)
            assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "CORE_SILENT")
            assert 1 <= (error.retry_after_s or 0) <= 2
        gateway.core().resume()
        async with asyncio.timeout(30):
            assert (await watch.read()).status == SERVING
            for _ in range(200):
                assert (await stream.read()).HasField("delta")
        stream.cancel()


async def test_a_core_that_does_nothing_for_long(byte_model: ModelFiles, short_folder: Path) -> None:
    """Health is answered, deadlines are kept; when the core dies, who still waits for it is told at once."""
    async with GatewayProcess(byte_model, short_folder) as gateway, stubs_of(gateway) as stubs:
        core = gateway.core()
        core.suspend()
        await asyncio.to_thread(_wait_until_stopped, core)
        stuck = stubs.inference.Generate(ENDLESS)
        calls = [stubs.control.ResetPrefixCache(ResetPrefixCacheRequest(), timeout=t) for t in (0.5, None)]
        error = await error_of(stubs.inference.Generate(ENDLESS, timeout=0.5))
        assert error.code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert (await error_of(calls[0])).code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await stubs.status_of("") == SERVING
        core.kill()
        async with asyncio.timeout(10):
            for call in (stuck, calls[1]):
                assert (await error_of(call)).reason == "CORE_LOST"
        assert await gateway.exit_code() == 1


async def test_one_lost_core_of_two(byte_model: ModelFiles, short_folder: Path) -> None:
    """Its streams end at once and may be tried elsewhere; those of the other end as they would have; exit code 1."""
    async with GatewayProcess(byte_model, short_folder, data_parallel_size=2) as gateway, stubs_of(gateway) as stubs:
        watch = stubs.health.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        params = {"max_tokens": 100, "ignore_eos": True}
        requests = [pb.GenerateRequest(text="hi", sampling_params=params, data_parallel_rank=rank) for rank in (0, 1)]
        streams = [aiter(stubs.inference.GenerateStream(request)) for request in requests]
        for stream in streams:
            assert (await anext(stream)).HasField("started")
        gateway.cores()[0].kill()
        async with asyncio.timeout(30):
            error = await error_of(events_of(streams[0]))
            assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "CORE_LOST")
            assert (await watch.read()).status == NOT_SERVING
            events = await events_of(streams[1])
        assert events[-1].finished.finish_reason == pb.FINISH_REASON_LENGTH
        assert events[-1].finished.usage.num_output_tokens == 100
        assert await gateway.exit_code() == 1
        assert "rank 0: " in gateway.log
        assert gateway.leftovers() == []


async def test_a_core_restarted_elsewhere_takes_over(
    gateway_config: GatewayConfig, gateway: GatewayServer, inference: InferenceServiceStub, core: FakeCore
) -> None:
    """A core that shakes hands as one that is there is heard: what the old one had fails at once, what comes is its."""
    lost = inference.Generate(ENDLESS)
    await core.receive_add()
    async with FakeCore() as successor:
        await successor.shake_hands(gateway_config.core.handshake_address)
        error = await error_of(lost)
        assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "CORE_LOST")
        assert await successor.receive_abort(), "which it does not know, and ignores"
        call = inference.Generate(ENDLESS)
        await successor.receive_add()
        call.cancel()
    assert gateway.generator.num_requests <= 1


async def test_what_is_meant_for_the_gateway_does_not_reach_its_core(
    byte_model: ModelFiles, short_folder: Path
) -> None:
    """Our variables in its environment, such as a rank, are not the core's."""
    core = [sys.executable, "-c", "import os, sys; sys.exit(f'saw {[n for n in os.environ if \"SLUICE\" in n]}')"]
    environment = {"SLUICEGATE_DATA_PARALLEL_RANK": "7"}
    async with GatewayProcess(byte_model, short_folder, core, environment=environment) as gateway:
        assert await gateway.exit_code() == 1
        assert "saw []" in gateway.log


class DeafEngines(Engines):
    """Fails when it is to ask whether the cores are alive."""

    def beat(self) -> None:
        raise RuntimeError("deaf")


async def test_a_watch_that_fails_ends_all(short_folder: Path) -> None:
    """Instead of leaving the gateway without it."""
    address = f"ipc://{short_folder}/h"
    engines = DeafEngines(f"ipc://{short_folder}/i", f"ipc://{short_folder}/o")
    supervisor = Supervisor(CoreConfig(handshake_address=address, ping_timeout_s=0.1), engines, short_folder)
    async with FakeCore() as core, asyncio.timeout(30):
        await asyncio.gather(supervisor.load(), core.shake_hands(address))
        assert "deaf" in await engines.lost
    await supervisor.stop()
    engines.close()
