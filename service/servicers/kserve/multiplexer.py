"""Many requests of one stream, whose responses go out as they come, on one stream.

    requests ──▶ reader ──▶ a task for each request ──┐
                 waits when there are too many        ├─ one response at a time ──▶ responses
                                                      ┘
A task waits with its response until the ones before it have been written. What comes from the core meanwhile is merged
there: a client that does not read costs a response for each of its requests. The reader waits for tasks to end before
it takes more requests than there may be, and so does the client, whose messages are not read.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Generic, TypeVar

from service.calls.call import part_for, running
from service.wakeup import Wakeup

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")

MAX_REQUESTS = 1024


class Multiplexer(Generic[_Request, _Response]):
    """``answer`` gives the responses to one request; what it raises ends the whole stream. For one stream."""

    def __init__(
        self, answer: Callable[[_Request], AsyncGenerator[_Response, None]], max_requests: int = MAX_REQUESTS
    ) -> None:
        self._answer = answer
        self._room = asyncio.Semaphore(max_requests)
        self._tasks: set[asyncio.Task[None]] = set()
        self._next: _Response | None = None
        self._next_is_free = asyncio.Semaphore()
        self._has_ended = False
        self._failure: BaseException | None = None
        self._wakeup = Wakeup()

    def __repr__(self) -> str:
        return f"Multiplexer({len(self._tasks)} requests)"

    async def responses(self, requests: AsyncIterator[_Request]) -> AsyncGenerator[_Response, None]:
        """Until ``requests`` has ended and all of them are answered. Left before that, it cancels the answers."""
        reading = asyncio.ensure_future(self._read(requests))
        reading.add_done_callback(self._end)
        try:
            while self._next is not None or not self._has_ended:
                if self._next is None:
                    await self._wakeup.wait()
                    continue
                response, self._next = self._next, None
                self._next_is_free.release()
                yield response
        finally:
            for task in (reading, *self._tasks):
                task.cancel()
            await asyncio.gather(reading, *self._tasks, return_exceptions=True)
        if self._failure is not None:
            raise self._failure

    async def _read(self, requests: AsyncIterator[_Request]) -> None:
        async for request in requests:
            await self._room.acquire()
            task = asyncio.ensure_future(self._write_answer(request))
            self._tasks.add(task)
            task.add_done_callback(self._forget)
            del request  # it would be kept until the next one comes
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _write_answer(self, request: _Request) -> None:
        with running(part_for(request)):
            async with aclosing(self._answer(request)) as answer:
                del request
                async for response in answer:
                    await self._next_is_free.acquire()
                    self._next = response
                    self._wakeup.set(True)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled() and task.exception() is not None:
            self._end(task)

    def _end(self, task: "asyncio.Task[None]") -> None:
        """Of the reader, or of an answer that has failed."""
        if not task.cancelled() and self._failure is None:
            self._failure = task.exception()
        self._has_ended = True
        self._wakeup.set(True)
