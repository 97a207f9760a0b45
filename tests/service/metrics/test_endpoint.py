"""The HTTP server, as anyone may call it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from service.listener import ListenError
from service.metrics.endpoint import MetricsEndpoint


async def make_text() -> bytes:
    return b"up 1\n"


@pytest.fixture
async def endpoint() -> AsyncIterator[MetricsEndpoint]:
    served = MetricsEndpoint(make_text)
    await served.start("127.0.0.1:0")
    yield served
    await served.stop()


async def ask(endpoint: MetricsEndpoint, request: bytes, at: str = "") -> bytes:
    """What comes back until the server hangs up, from its own address or the one that it is reached ``at``."""
    host, _, port = endpoint.address.rpartition(":")
    reader, writer = await asyncio.open_connection(at or host, int(port))
    writer.write(request)
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    return answer


async def test_answer(endpoint: MetricsEndpoint) -> None:
    """GET has the text in format 0.0.4, whatever the client would rather have; a query changes nothing."""
    accept = b"Accept: application/openmetrics-text; version=1.0.0\r\n"
    for target in (b"/metrics", b"/metrics?name=x"):
        answer = await ask(endpoint, b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n" + accept + b"\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
        assert (b"Content-Length: 5" in head, body) == (True, b"up 1\n")


async def test_both_families() -> None:
    """At [::] it answers at addresses of IPv4, too, as gRPC does: a pod may have one of each."""
    served = MetricsEndpoint(make_text)
    await served.start("[::]:0")
    for address in ("127.0.0.1", "::1"):
        assert (await ask(served, b"GET /metrics HTTP/1.1\r\n\r\n", at=address)).endswith(b"up 1\n")
    await served.stop()


async def test_head(endpoint: MetricsEndpoint) -> None:
    """HEAD has the head of the answer alone."""
    answer = await ask(endpoint, b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert b"Content-Length: 5" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET / HTTP/1.1", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1", b"405 Method Not Allowed"),
        (b"", b"405"),
        (b"\xff\x00", b"405"),
    ],
)
async def test_anything_else(endpoint: MetricsEndpoint, request_line: bytes, status: bytes) -> None:
    """What is no request for the metrics is answered, and says why."""
    assert (await ask(endpoint, request_line + b"\r\n\r\n")).startswith(b"HTTP/1.1 " + status)


async def test_endless_request(endpoint: MetricsEndpoint) -> None:
    """A head that does not end is not read to its end."""
    with suppress(ConnectionResetError):
        assert await ask(endpoint, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 200_000) == b""
    assert (await ask(endpoint, b"GET /metrics HTTP/1.1\r\n\r\n")).endswith(b"up 1\n")


async def test_connections_are_bounded(endpoint: MetricsEndpoint) -> None:
    """Whoever connects and says nothing takes no more than the bound, and is hung up on when the server stops."""
    host, _, port = endpoint.address.rpartition(":")
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(32)]
    surplus, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(30):
        assert await surplus.read() == b""
        await endpoint.stop()
        assert [await reader.read() for reader, _ in silent] == [b""] * 32
    for open_writer in [writer, *(w for _, w in silent)]:
        open_writer.close()


async def make_much_text() -> bytes:
    return b"up 1\n" * 2**23


async def test_a_client_that_does_not_read() -> None:
    """What waits for a client that does not read is dropped when its time is up, or the server stops."""
    served = MetricsEndpoint(make_much_text)
    await served.start("127.0.0.1:0")
    host, _, port = served.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))  # which reads no further ahead than 128 KiB
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(30):
        assert await reader.read(1) == b"H"
        await served.stop()
        with suppress(ConnectionResetError):
            assert len(await reader.read()) < len(await make_much_text())
    writer.close()


@pytest.mark.parametrize("address", ["192.0.2.1:1", "no.such.host.invalid:1"])
async def test_address_that_cannot_be(address: str) -> None:
    """An address that is not this host's is refused by name."""
    with pytest.raises(ListenError, match=rf"cannot listen on {address} \(--metrics-address\): "):
        await MetricsEndpoint(make_text).start(address)


async def test_port_in_use(endpoint: MetricsEndpoint) -> None:
    """So is one that another process listens on."""
    with pytest.raises(ListenError, match=endpoint.address):
        await MetricsEndpoint(make_text).start(endpoint.address)
