"""A gateway in this process, with a scripted core behind it and a channel before it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from service.config import CoreConfig, GatewayConfig, LimitsConfig, ListenConfig
from service.models import ModelFiles
from service.server import GatewayServer
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.byte_model import write_byte_model
from tests.service.fake_core import READY, FakeCore


@pytest.fixture(scope="session")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    return write_byte_model(tmp_path_factory.mktemp("bytes"))


@pytest.fixture
def gateway_config(byte_model: ModelFiles, tmp_path: Path) -> GatewayConfig:
    return GatewayConfig(
        byte_model,
        CoreConfig(
            handshake_address=f"ipc://{tmp_path}/handshake", load_timeout_s=60, ping_timeout_s=600, max_restarts=0
        ),
        ListenConfig(("127.0.0.1:0",), "127.0.0.1:0"),
        LimitsConfig(max_queued_requests=1000, drain_timeout_s=20),
    )


@pytest.fixture
async def core(request: pytest.FixtureRequest) -> AsyncIterator[FakeCore]:
    """Parametrize it with another ready response if need be."""
    async with FakeCore(getattr(request, "param", READY)) as fake:
        yield fake


@pytest.fixture
async def gateway(gateway_config: GatewayConfig, core: FakeCore) -> AsyncIterator[GatewayServer]:
    server = GatewayServer(gateway_config)
    try:
        await asyncio.gather(server.start(), core.shake_hands(gateway_config.core.handshake_address))
        yield server
    finally:
        await server.stop()


@pytest.fixture
async def channel(gateway: GatewayServer) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(gateway.grpc_addresses[0]) as opened:
        yield opened


@pytest.fixture
def inference(channel: grpc.aio.Channel) -> InferenceServiceStub:
    return InferenceServiceStub(channel)


@pytest.fixture
async def control(gateway: GatewayServer) -> AsyncIterator[ControlServiceStub]:
    async with grpc.aio.insecure_channel(gateway.admin_address) as opened:
        yield ControlServiceStub(opened)
