"""Server-sent events over a real socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bench.peers.event_stream import EventStreamError, events, is_healthy

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def server_that_says(answer: bytes, asked: list[bytes]) -> AsyncIterator[int]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line.split()[1]) for line in head.splitlines() if line.startswith(b"Content-Length")), 0)
        asked.append(head + await reader.readexactly(length))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


async def test_events_as_they_are_sent() -> None:
    """What is not an event is passed over, and so is the mark of the end."""
    answer = CHUNKED + chunk(b'data: {"a": 1}\n\n') + chunk(b": ping\n\n") + chunk(b'data: {"a": 2}\n\n')
    asked: list[bytes] = []
    async with server_that_says(answer + chunk(b"data: [DONE]\n\n") + chunk(b""), asked) as port:
        assert [event async for event in events(port, "/x", {"b": [1]})] == [{"a": 1}, {"a": 2}]
    assert asked[0].startswith(b"POST /x HTTP/1.1\r\n")
    assert json.loads(asked[0].split(b"\r\n\r\n")[1]) == {"b": [1]}


async def test_a_refusal() -> None:
    """Its text is in the error."""
    async with server_that_says(b"HTTP/1.1 400 Bad Request\r\n\r\nno such field", []) as port:
        with pytest.raises(EventStreamError, match="no such field"):
            _ = [event async for event in events(port, "/x", {})]


async def test_health() -> None:
    """Healthy is who says 200: not who loads, and not nobody."""
    async with server_that_says(b"HTTP/1.1 200 OK\r\n\r\n", []) as port:
        assert await is_healthy(port)
    assert not await is_healthy(port)
    async with server_that_says(b"HTTP/1.1 503 Loading\r\n\r\n", []) as port:
        assert not await is_healthy(port)
