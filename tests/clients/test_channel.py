"""What every channel of the clients has."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from sluicegate_client import AsyncClient, Client, UnavailableError
from sluicegate_client.channel import channel_options
from tests.clients.fake_server import FakeServer, fake_server

EMPTY_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SETTINGS_ACK = bytes([0, 0, 0, 4, 1, 0, 0, 0, 0])


def test_what_is_given_wins() -> None:
    """Options of one's own come before the defaults, which stay where nothing is said."""
    options = dict(channel_options([("grpc.keepalive_time_ms", 1)]))
    assert options["grpc.keepalive_time_ms"] == 1
    assert options["grpc.keepalive_timeout_ms"] == options["grpc.http2.ping_timeout_ms"] == 10_000


async def test_a_server_that_hangs() -> None:
    """A server that says nothing any more, though its machine answers, fails the call; no deadline is needed."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(EMPTY_SETTINGS + SETTINGS_ACK)
        while await reader.read(65536):
            pass
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    soon = [("grpc.keepalive_time_ms", 200), ("grpc.http2.ping_timeout_ms", 200)]
    async with AsyncClient(address, options=soon) as client, asyncio.timeout(30):
        with pytest.raises(UnavailableError):
            await client.generate("hello")
    server.close()


@pytest.fixture
def servers() -> Iterator[tuple[FakeServer, FakeServer]]:
    with fake_server() as first, fake_server() as second:
        yield first, second


def _num_requests(*servers: FakeServer) -> list[int]:
    return [len(server.service.requests) for server in servers]


def test_calls_go_in_turn_to_every_server_that_is_ready(servers: tuple[FakeServer, FakeServer]) -> None:
    """One that says that it is not ready gets none, and none fails; when it is again, it gets its part."""
    first, second = servers
    with Client(f"ipv4:{first.address},{second.address}") as client:
        _until(client, lambda: min(_num_requests(*servers)) > 0)
        first.set_serving(False)
        _until(client, lambda: _gets_all(second, servers, client))
        first.set_serving(True)
        _until(client, lambda: not _gets_all(second, servers, client))


def _until(client: Client, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        client.tokenize("one")


def _gets_all(server: FakeServer, servers: tuple[FakeServer, FakeServer], client: Client) -> bool:
    before = _num_requests(server)[0]
    num_others = sum(_num_requests(*servers)) - before
    for _ in range(6):
        client.tokenize("one")
    return sum(_num_requests(*servers)) - _num_requests(server)[0] == num_others


async def test_none_of_several_servers_is_ready(servers: tuple[FakeServer, FakeServer]) -> None:
    """The error says so, instead of gRPC's words for it."""
    for server in servers:
        server.set_serving(False)
    async with AsyncClient(f"ipv4:{servers[0].address},{servers[1].address}") as client:
        with pytest.raises(UnavailableError, match="none of its servers is ready"):
            await client.tokenize("one")


def test_a_name_of_one_server(server: FakeServer) -> None:
    """DNS may know any number; localhost is also that of IPv6, where nobody listens."""
    with Client(f"dns:///localhost:{server.address.rpartition(':')[2]}") as client:
        assert client.detokenize([1]) == "x"
