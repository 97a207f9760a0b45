"""Many requests on one stream."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import pytest

from service.servicers.kserve.multiplexer import Multiplexer


class Clients:
    """Requests are names; an answer gives what is said to it. ``live`` are those that run."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[str | None] = asyncio.Queue()
        self.live: dict[str, asyncio.Queue[str | None]] = {}
        self.num_taken = 0
        self.changed = asyncio.Event()

    async def stream(self) -> AsyncIterator[str]:
        while (request := await self.requests.get()) is not None:
            self.num_taken += 1
            yield request

    async def answer(self, request: str) -> AsyncGenerator[str, None]:
        self.live[request] = asyncio.Queue()
        self.changed.set()
        try:
            while (said := await self.live[request].get()) is not None:
                if said == "fail":
                    raise ValueError(request)
                yield f"{request}:{said}"
        finally:
            del self.live[request]
            self.changed.set()

    async def until(self, *live: str) -> None:
        async with asyncio.timeout(20):
            while sorted(self.live) != sorted(live):
                self.changed.clear()
                await self.changed.wait()


async def next_of(responses: AsyncGenerator[str, None]) -> str:
    async with asyncio.timeout(20):
        return await anext(responses)


async def test_responses_come_as_they_are_made() -> None:
    """Of one request in order, of all as they come; the stream ends with the last of them."""
    clients = Clients()
    async with aclosing(Multiplexer(clients.answer).responses(clients.stream())) as responses:
        first = asyncio.ensure_future(next_of(responses))
        for name in ("a", "b"):
            clients.requests.put_nowait(name)
        clients.requests.put_nowait(None)
        await clients.until("a", "b")
        clients.live["b"].put_nowait("1")
        assert await first == "b:1"
        clients.live["a"].put_nowait("1")
        assert await next_of(responses) == "a:1"
        for said in ("2", None):
            clients.live["b"].put_nowait(said)
        assert await next_of(responses) == "b:2"
        clients.live["a"].put_nowait(None)
        with pytest.raises(StopAsyncIteration):
            await next_of(responses)


async def test_no_request() -> None:
    """An empty stream is answered by one."""
    clients = Clients()
    clients.requests.put_nowait(None)
    assert [response async for response in Multiplexer(clients.answer).responses(clients.stream())] == []


async def test_requests_are_bounded() -> None:
    """One more than may run is taken from the client, and waits for room."""
    clients = Clients()
    async with aclosing(Multiplexer(clients.answer, max_requests=2).responses(clients.stream())) as responses:
        waiting = asyncio.ensure_future(next_of(responses))
        for name in "abcd":
            clients.requests.put_nowait(name)
        await clients.until("a", "b")
        assert clients.num_taken <= 3
        clients.live["a"].put_nowait(None)
        await clients.until("b", "c")
        clients.live["c"].put_nowait("x")
        assert await waiting == "c:x"


async def test_a_client_that_does_not_read() -> None:
    """One response waits to be written, and each answer with its next; nothing more is made."""
    clients = Clients()
    async with aclosing(Multiplexer(clients.answer).responses(clients.stream())) as responses:
        waiting = asyncio.ensure_future(next_of(responses))
        clients.requests.put_nowait("a")
        await clients.until("a")
        for number in range(10):
            clients.live["a"].put_nowait(str(number))
        assert await waiting == "a:0"
        for _ in range(20):
            await asyncio.sleep(0)
        assert clients.live["a"].qsize() >= 7
        assert [await next_of(responses) for _ in range(9)] == [f"a:{number}" for number in range(1, 10)]


async def test_leaving_it_cancels_everything() -> None:
    """At once: when it is closed, no answer runs any more."""
    clients = Clients()
    responses = Multiplexer(clients.answer).responses(clients.stream())
    waiting = asyncio.ensure_future(next_of(responses))
    for name in "ab":
        clients.requests.put_nowait(name)
    await clients.until("a", "b")
    clients.live["a"].put_nowait("1")
    await waiting
    await responses.aclose()
    assert clients.live == {}


async def test_a_failure_ends_the_stream() -> None:
    """Of an answer, or of the requests themselves; the others are cancelled."""
    clients = Clients()
    responses = Multiplexer(clients.answer).responses(clients.stream())
    waiting = asyncio.ensure_future(next_of(responses))
    for name in "ab":
        clients.requests.put_nowait(name)
    await clients.until("a", "b")
    clients.live["a"].put_nowait("fail")
    with pytest.raises(ValueError, match="a"):
        await waiting
    assert clients.live == {}

    async def broken() -> AsyncIterator[str]:
        yield "c"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await next_of(Multiplexer(clients.answer).responses(broken()))
    assert clients.live == {}
