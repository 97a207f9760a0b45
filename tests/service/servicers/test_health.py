"""grpc.health.v1 on both addresses of a gateway."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from service.config import GatewayConfig
from service.server import GatewayServer
from service.services import CONTROL, INFERENCE, KSERVE, VLLM_ENGINE
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import FakeCore

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
NAMES = ["", "liveness", "readiness", INFERENCE, CONTROL, VLLM_ENGINE, KSERVE]


async def status_of(health: HealthStub, service: str) -> int:
    return (await health.Check(health_pb2.HealthCheckRequest(service=service))).status


async def test_a_ready_server_serves(channel: grpc.aio.Channel) -> None:
    """Every name is SERVING once the core is ready, by Check and by List alike."""
    health = HealthStub(channel)
    assert [await status_of(health, name) for name in NAMES] == [SERVING] * len(NAMES)
    listed = (await health.List(health_pb2.HealthListRequest())).statuses
    assert {name: response.status for name, response in listed.items()} == dict.fromkeys(NAMES, SERVING)


async def test_unknown_service(channel: grpc.aio.Channel) -> None:
    """Check of an unknown name is NOT_FOUND; Watch says SERVICE_UNKNOWN and stays open."""
    health = HealthStub(channel)
    error = await error_of(health.Check(health_pb2.HealthCheckRequest(service="nobody")))
    assert error.code is grpc.StatusCode.NOT_FOUND
    watch = health.Watch(health_pb2.HealthCheckRequest(service="nobody"))
    assert (await watch.read()).status == SERVICE_UNKNOWN
    assert not watch.done()
    watch.cancel()


async def test_watch_pushes_every_change(channel: grpc.aio.Channel, gateway: GatewayServer) -> None:
    """A watch says SERVING, then NOT_SERVING when the drain begins, and ends OK when the server stops."""
    watch = HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="readiness"))
    async with asyncio.timeout(20):
        assert (await watch.read()).status == SERVING
        await gateway.drain()
        assert (await watch.read()).status == NOT_SERVING
        stopping = asyncio.ensure_future(gateway.stop())
        assert await watch.read() is grpc.aio.EOF
        await stopping


async def test_a_draining_server_lives(channel: grpc.aio.Channel, gateway: GatewayServer) -> None:
    """A drain takes every name away but liveness."""
    await gateway.drain()
    health = HealthStub(channel)
    assert [await status_of(health, name) for name in NAMES] == [
        SERVING if name == "liveness" else NOT_SERVING for name in NAMES
    ]


async def test_a_loading_server_answers(gateway_config: GatewayConfig, core: FakeCore) -> None:
    """While the core loads, health says NOT_SERVING and a watch then tells of SERVING."""
    server = GatewayServer(gateway_config)
    starting = asyncio.ensure_future(server.start())
    try:
        async with asyncio.timeout(20):
            await server.listening.wait()
            async with grpc.aio.insecure_channel(server.grpc_addresses[0]) as channel:
                watch = HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
                assert (await watch.read()).status == NOT_SERVING
                await core.shake_hands(gateway_config.core.handshake_address)
                assert (await watch.read()).status == SERVING
                watch.cancel()
            await starting
    finally:
        await server.stop()


@pytest.mark.parametrize("address", ["grpc", "admin"])
async def test_both_addresses_answer(gateway: GatewayServer, address: str) -> None:
    """Health is served on the public and on the admin address."""
    target = gateway.admin_address if address == "admin" else gateway.grpc_addresses[0]
    async with grpc.aio.insecure_channel(target) as channel:
        assert await status_of(HealthStub(channel), "") == SERVING
