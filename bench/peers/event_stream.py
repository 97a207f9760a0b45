"""Streams of server-sent events over HTTP, as the HTTP servers of engines send them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

_DATA = b"data: "
_DONE = b"[DONE]"
_LINE_LIMIT = 1 << 24


class EventStreamError(Exception):
    """The server refused; the text is its answer."""


async def events(port: int, path: str, body: Mapping[str, Any]) -> AsyncIterator[Any]:
    """The JSON of each event that answers a POST, as it arrives. Raises EventStreamError, OSError.

    The lines of chunked encoding are passed over: these servers send an event as a chunk.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_LINE_LIMIT)
    try:
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        status = await reader.readline()
        if b" 200 " not in status:
            raise EventStreamError(f"{status.decode().strip()}: {(await reader.read()).decode()[-500:]}")
        async for line in reader:
            if line.startswith(_DATA) and not line.startswith(_DATA + _DONE):
                yield json.loads(line.removeprefix(_DATA))
    finally:
        writer.close()


async def is_healthy(port: int) -> bool:
    """Whether a GET of /health is answered with 200."""
    with suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return b" 200 " in await reader.readline()
        finally:
            writer.close()
    return False
