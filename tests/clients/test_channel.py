"""What every channel of the clients has."""

import asyncio

import pytest

from sluicegate_client import AsyncClient, UnavailableError
from sluicegate_client.channel import channel_options

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
