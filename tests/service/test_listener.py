"""gRPC servers on real addresses."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from service.listener import Listener, ListenError
from service.server import GatewayServer


async def test_several_addresses() -> None:
    """A listener takes several addresses and tells their real ports."""
    listener = Listener()
    listener.bind("127.0.0.1:0")
    listener.bind("localhost:0")
    first, second = (address.rpartition(":") for address in listener.addresses)
    assert (first[0], second[0]) == ("127.0.0.1", "localhost")
    assert 0 < int(first[2]) != int(second[2]) > 0
    await listener.server.stop(None)


@pytest.mark.parametrize(
    "address", ["no.such.host.invalid:1", "unix:/nowhere/at/all", "192.0.2.1:5000", "unix:/tmp/" + 200 * "x"]
)
async def test_address_that_cannot_be(address: str) -> None:
    """An address that is not this host's is refused by name."""
    listener = Listener()
    with pytest.raises(ListenError, match=address):
        listener.bind(address)
    await listener.server.stop(None)


async def test_frequent_pings_are_tolerated(gateway: GatewayServer) -> None:
    """A client that pings every second keeps its silent stream; gRPC's default hangs up at the third ping."""
    options = [
        ("grpc.keepalive_time_ms", 1000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
    async with grpc.aio.insecure_channel(gateway.grpc_addresses[0], options=options) as channel:
        watch = HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watch.read(), 4.5)
