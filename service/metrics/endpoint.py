"""The HTTP server of /metrics, on the event loop: one answer per connection, always the same text format.

Prometheus may ask for another format; dashboards want the names as they are, which only the oldest format keeps.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST

from service.listener import ListenError
from service.port import check_port

_PATH = b"/metrics"
_TIMEOUT_S = 10.0
"""For a request to be there and its answer to be taken."""
_MAX_CONNECTIONS = 32
"""More are hung up on."""


class MetricsEndpoint:
    """Answers GET and HEAD of ``/metrics`` with what ``make_text`` returns."""

    def __init__(self, make_text: Callable[[], Awaitable[bytes]]) -> None:
        self._make_text = make_text
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.address = ""
        """``HOST:PORT``, with the real port, once it listens."""

    async def start(self, address: str) -> None:
        """Listen on ``HOST:PORT``, port 0 = any. Raises ListenError if that is not possible."""
        host, _, port = address.rpartition(":")
        try:
            check_port(address)
            self._server = await self._listen(host.strip("[]"), int(port))
        except OSError as error:
            raise ListenError(f"cannot listen on {address} (--metrics-address): {error.strerror or error}") from error
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        if host != "::":
            return await asyncio.start_server(self._accept, host, port)
        # For IPv4 too, as gRPC listens there: asyncio by itself would take IPv6 alone.
        listener = socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True)
        return await asyncio.start_server(self._accept, sock=listener)

    async def stop(self) -> None:
        """Hang up on everyone."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= _MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hung_up = asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, TimeoutError
        try:
            with suppress(*hung_up):
                async with asyncio.timeout(_TIMEOUT_S):
                    request_line = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0]
                    writer.write(await self._answer(request_line))
                    writer.close()
                    await writer.wait_closed()
        finally:
            # Closed politely, a connection would wait for whoever does not read its answer, and count no more.
            writer.transport.abort()

    async def _answer(self, request_line: bytes) -> bytes:
        method, _, target = request_line.partition(b" ")
        if method not in (b"GET", b"HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, b"GET or HEAD\n", "Allow: GET, HEAD")
        if target.partition(b" ")[0].partition(b"?")[0] != _PATH:
            return _response(HTTPStatus.NOT_FOUND, b"only /metrics is here\n")
        head, separator, body = _response(HTTPStatus.OK, await self._make_text()).partition(b"\r\n\r\n")
        return head + separator + (body if method == b"GET" else b"")


def _response(status: HTTPStatus, body: bytes, *fields: str) -> bytes:
    content_type = CONTENT_TYPE_LATEST if status is HTTPStatus.OK else "text/plain; charset=utf-8"
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *fields,
    ]
    return "\r\n".join([*head, "", ""]).encode() + body
