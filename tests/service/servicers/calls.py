"""What a test waits for while calls run."""

import asyncio
from collections.abc import AsyncIterator

from service.server import GatewayServer
from sluicegate.v1 import inference_service_pb2 as pb

Stream = AsyncIterator[pb.GenerateStreamResponse]


async def events_of(stream: Stream) -> list[pb.GenerateStreamResponse]:
    async with asyncio.timeout(20):
        return [event async for event in stream]


async def until_idle(gateway: GatewayServer) -> None:
    """Wait until the gateway tracks no request, and check that no table holds one."""
    async with asyncio.timeout(20):
        await gateway.generator.wait_idle()
    assert gateway.generator.num_requests == 0
