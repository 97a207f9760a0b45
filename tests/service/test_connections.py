"""What a connection may ask for, and how it ends: real servers, and clients that do not behave."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub, add_HealthServicer_to_server

from service.config import ConnectionsConfig
from service.listener import Listener
from service.servicers.health import Health
from tests.service.errors_of_calls import error_of

Serve = Callable[[ConnectionsConfig], AbstractAsyncContextManager[str]]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@pytest.fixture
def serve() -> Serve:
    """A server of health, at the address that it gives."""

    @asynccontextmanager
    async def served(config: ConnectionsConfig) -> AsyncIterator[str]:
        listener = Listener(connections=config)
        add_HealthServicer_to_server(Health([]), listener.server)
        listener.bind("127.0.0.1:0")
        await listener.server.start()
        yield listener.addresses[0]
        await listener.stop(0)

    return served


@asynccontextmanager
async def strict_server() -> AsyncIterator[str]:
    """As gRPC would have it."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


def ping(number: int) -> bytes:
    return bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + number.to_bytes(8)


def pong(number: int) -> bytes:
    return bytes([0, 0, 8, 6, 1, 0, 0, 0, 0]) + number.to_bytes(8)


async def hung_up_on(address: str, *words: bytes) -> None:
    """Return when the server has closed the connection of a client that says ``words`` and then nothing."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.writelines(words)
    async with asyncio.timeout(30):
        await reader.read(-1)
    writer.close()


async def answered(health: HealthStub) -> None:
    await health.Check(health_pb2.HealthCheckRequest(), timeout=30)


@pytest.mark.parametrize("is_ours", [True, False])
async def test_any_number_of_pings(serve: Serve, is_ours: bool) -> None:
    """Pings in any number are answered, where gRPC's own rules hang up; so they are while a long prefill is silent."""
    async with serve(ConnectionsConfig()) if is_ours else strict_server() as address:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.writelines([PREFACE, EMPTY_SETTINGS, *[ping(number) for number in range(100)]])
        end = pong(99) if is_ours else b"too_many_pings"
        async with asyncio.timeout(30):
            await reader.readuntil(end)
        writer.close()


async def test_a_client_whose_machine_is_gone(serve: Serve) -> None:
    """One that does not answer a ping is hung up on, while a silent one that does keeps its stream."""
    config = ConnectionsConfig(keepalive_interval_s=0.1, keepalive_timeout_s=0.2)
    async with serve(config) as address, grpc.aio.insecure_channel(address) as channel:
        watch = HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        await hung_up_on(address, PREFACE, EMPTY_SETTINGS)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watch.read(), 0.5)


@pytest.mark.parametrize("words", [[], [PREFACE[:10]]])
async def test_a_client_that_does_not_begin(serve: Serve, words: list[bytes]) -> None:
    """Who connects and does not speak HTTP/2 in time is hung up on; others are served meanwhile."""
    async with (
        serve(ConnectionsConfig(client_handshake_timeout_s=0.2)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        await asyncio.gather(hung_up_on(address, *words), answered(HealthStub(channel)))
        await answered(HealthStub(channel))


async def test_an_old_connection(serve: Serve) -> None:
    """At its age a client connects anew and no call fails; a stream that outlasts the grace too ends UNAVAILABLE."""
    config = ConnectionsConfig(max_connection_age_s=0.2, max_connection_age_grace_s=0.3)
    async with serve(config) as address, grpc.aio.insecure_channel(address) as channel:
        health = HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        end = asyncio.ensure_future(error_of(watch.read()))
        while not end.done():
            await answered(health)
        assert (await end).code is grpc.StatusCode.UNAVAILABLE


async def test_metadata_that_is_too_much(serve: Serve) -> None:
    """Beyond the bound a call ends RESOURCE_EXHAUSTED, below it is served, and its connection goes on."""
    async with (
        serve(ConnectionsConfig(max_metadata_bytes=20_000)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        health = HealthStub(channel)
        for _ in range(3):
            await health.Check(health_pb2.HealthCheckRequest(), metadata=[("x-much", "x" * 19_000)], timeout=30)
            call = health.Check(health_pb2.HealthCheckRequest(), metadata=[("x-much", "x" * 20_000)], timeout=30)
            assert (await error_of(call)).code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_calls_at_once_on_a_connection(serve: Serve) -> None:
    """More calls than may be at once wait at the client until one ends; nothing fails."""
    async with (
        serve(ConnectionsConfig(max_concurrent_streams=2)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        health = HealthStub(channel)
        watches = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(2)]
        for watch in watches:
            await watch.read()
        waiting = asyncio.ensure_future(answered(health))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.3)
        watches[0].cancel()
        await waiting


async def test_a_large_answer() -> None:
    """What the server sends is bounded by its client alone; one that takes gRPC's 4 MiB is told so, others go on."""

    async def answer(request: bytes, _context: object) -> bytes:
        return bytes(int(request))

    method = grpc.unary_unary_rpc_method_handler(answer)
    listener = Listener()
    listener.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", {"M": method}),))
    listener.bind("127.0.0.1:0")
    await listener.server.start()
    async with (
        grpc.aio.insecure_channel(listener.addresses[0], [("grpc.max_receive_message_length", -1)]) as wide,
        grpc.aio.insecure_channel(listener.addresses[0]) as narrow,
    ):
        error = await error_of(narrow.unary_unary("/S/M")(b"20000000"))
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(await wide.unary_unary("/S/M")(b"20000000")) == 20_000_000
        assert len(await narrow.unary_unary("/S/M")(b"4000000")) == 4_000_000
    await listener.stop(0)


async def test_message_size(serve: Serve) -> None:
    """The bound of messages is the one given."""
    async with (
        serve(ConnectionsConfig(max_message_bytes=1000)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        health = HealthStub(channel)
        error = await error_of(health.Check(health_pb2.HealthCheckRequest(service="x" * 1000)))
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        await answered(health)
