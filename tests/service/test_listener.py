"""gRPC servers on real addresses."""

import asyncio
import os
import socket
from tempfile import TemporaryDirectory

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


async def test_a_taken_port_is_named() -> None:
    """A name of which one address is taken is refused, with the address and the flag, and gRPC is not asked."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listener = Listener()
        with pytest.raises(
            ListenError, match=rf"^cannot listen on localhost:{port} \(.*\): .* in use \(127.0.0.1:{port}\)$"
        ):
            listener.bind(f"localhost:{port}")
        with pytest.raises(ListenError, match=rf"^cannot listen on 127.0.0.1:{port} \(--a\): Address already in use$"):
            listener.bind(f"127.0.0.1:{port}", "--a")
        assert listener.addresses == []
        await listener.stop(0)


async def test_files_of_sockets() -> None:
    """A live socket is not taken over, a stale one is; none is left, whether the server was started or not."""
    with TemporaryDirectory(prefix="sg") as folder:
        address = f"unix:{folder}/s"
        for is_started in (False, True):
            listener, second = Listener(), Listener()
            socket.socket(socket.AF_UNIX).bind(f"{folder}/s")
            listener.bind(address)
            if is_started:
                await listener.server.start()
                with pytest.raises(ListenError, match=rf"^cannot listen on {address} \(.*\): another process does$"):
                    second.bind(address)
            await second.stop(0)
            assert os.listdir(folder) == ["s"]
            await listener.stop(0)
            assert os.listdir(folder) == []
        with pytest.raises(ListenError, match="a file that is no socket is there"):
            second.bind(f"unix:{folder}")
