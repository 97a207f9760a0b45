"""The requests that run: taken on, put to the core, streamed, and always cleaned up after."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from core.wire.messages import FinishReason
from service.admission.admission import Admission
from service.calls.call import time_remaining_s
from service.embedding import Embedded, Embedding, EmbeddingRequest
from service.engine_client import EngineClient
from service.errors import AlreadyExists, shown
from service.events import Event
from service.generation import Generation
from service.generation_request import GenerationRequest
from service.run import EventT, Run, Work
from service.text.tokenizer import Tokenizer
from service.wakeup import Wakeup

AbortElsewhere = Callable[[Sequence[str]], Awaitable[int]]
"""As ``Generator.abort``, in other processes."""


async def nobody_aborts(_request_ids: Sequence[str]) -> int:
    """There is no other process."""
    return 0


class Generator:
    """Runs requests on one core. The table holds each request from ``start`` to the end of its ``with`` block."""

    def __init__(self, engine: EngineClient, tokenizer: Tokenizer, admission: Admission) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self.admission = admission
        self._running: dict[str, Work[Any]] = {}
        self._num_unfinished = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __repr__(self) -> str:
        return f"Generator({len(self._running)} requests, {self.num_sequences} sequences)"

    @property
    def num_requests(self) -> int:
        """Requests in the table."""
        return len(self._running)

    @property
    def num_sequences(self) -> int:
        """Of all requests in the table."""
        return self.admission.num_sequences

    def start(self, request: GenerationRequest) -> AbstractContextManager[AsyncIterator[Event]]:
        """Put ``request`` to the core and give its events. However the block is left, the core is told to stop.

        Raises AlreadyExists for the id of a live request, QueueFull and ResourceExhausted when it is too much, and
        Unavailable without a core.
        The events may raise Internal when the core fails at the request, Unavailable when the core dies.
        """
        return self._events(Generation(request, self._tokenizer))

    def start_embedding(self, request: EmbeddingRequest) -> AbstractContextManager[AsyncIterator[Embedded]]:
        """As ``start``; the one event is the vector. It may also raise Unavailable if the request is aborted."""
        return self._events(Embedding(request))

    def open(
        self, request: GenerationRequest, on_arrival: Callable[[bool], None]
    ) -> AbstractContextManager[Run[Event]]:
        """As ``start``, for a caller that takes the events itself when ``on_arrival`` is called, as of OutputStream."""
        return self._run(Generation(request, self._tokenizer), on_arrival)

    @contextmanager
    def _events(self, work: Work[EventT]) -> Iterator[AsyncIterator[EventT]]:
        wakeup = Wakeup()
        with self._run(work, wakeup.set) as run:
            yield _taken(run, wakeup)

    @contextmanager
    def _run(self, work: Work[EventT], on_arrival: Callable[[bool], None]) -> Iterator[Run[EventT]]:
        self._take_on(work)
        try:
            stream = self._engine.add(work.core_requests(), on_arrival, may_differ=work.request.may_differ)
            run = Run(work, stream, self._engine, self._finish_one)
            try:
                yield run
            except Exception:
                run.end = FinishReason.ERROR
                raise
            finally:
                self._engine.close_stream(stream, run.end)
        finally:
            self._let_go(work)

    def check_room(self, num_sequences: int) -> None:
        """Raises QueueFull unless so many more may be live."""
        self.admission.check_room(num_sequences)

    def abort(self, request_ids: Iterable[str]) -> int:
        """End running requests as aborted and return how many there were. Unknown ids are ignored."""
        named = [self._running[request_id] for request_id in set(request_ids) if request_id in self._running]
        running = [work for work in named if not work.finished]
        for work in running:
            self._engine.abort(work.core_ids)
        return len(running)

    async def wait_idle(self) -> None:
        """Return when no request runs. One whose last event waits for its client to read does not."""
        await self._idle.wait()

    async def drain(self, timeout_s: float) -> int:
        """Wait until no request runs. Abort those that still do after ``timeout_s`` and return how many."""
        try:
            await asyncio.wait_for(self.wait_idle(), timeout_s)
        except TimeoutError:
            return self.abort_all()
        return 0

    def abort_all(self) -> int:
        """End every running request as aborted and return how many there were."""
        return self.abort(list(self._running))

    def _take_on(self, work: Work[Any]) -> None:
        """Until ``_let_go``, ``work`` is counted, and can be aborted. Raises as ``start`` if it cannot be taken on."""
        request = work.request
        if request.request_id in self._running:
            raise AlreadyExists(f"request_id {shown(request.request_id)} is the id of a live request")
        self.admission.admit(request, time_remaining_s())
        self._running[request.request_id] = work
        self._num_unfinished += 1
        self._idle.clear()

    def _let_go(self, work: Work[Any]) -> None:
        del self._running[work.request.request_id]
        self.admission.release(work.request)
        if not work.finished:
            self._finish_one()

    def _finish_one(self) -> None:
        self._num_unfinished -= 1
        if not self._num_unfinished:
            self._idle.set()


async def _taken(run: Run[EventT], wakeup: Wakeup) -> AsyncIterator[EventT]:
    while not run.finished:
        await wakeup.wait()
        for event in run.take():
            yield event
