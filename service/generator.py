"""The requests that run: taken on, put to the core, streamed, and always cleaned up after."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from core.wire.messages import EngineCoreOutput, EngineCoreRequest, FinishReason
from service.embedding import Embedded, Embedding, EmbeddingRequest
from service.engine_client import EngineClient
from service.errors import AlreadyExists, QueueFull, ResourceExhausted, shown
from service.events import Event, Finished
from service.generation import Generation
from service.generation_request import GenerationRequest
from service.output_stream import OutputStream
from service.prompt_embeds import MAX_EMBEDS_BYTES
from service.tokenizer import Tokenizer

_Event = TypeVar("_Event", covariant=True)


@dataclass(frozen=True)
class GeneratorLimits:
    """``max_sequences``: live at once. ``max_cached_tokens``: what the KV cache holds for one request alone.

    ``max_embeds_bytes``: of the prompt_embeds of all live sequences together.
    """

    max_sequences: int
    max_cached_tokens: int
    max_embeds_bytes: int = MAX_EMBEDS_BYTES


class _Work(Protocol[_Event]):
    """A request on its way: a Generation or an Embedding."""

    @property
    def request(self) -> GenerationRequest | EmbeddingRequest: ...

    @property
    def core_ids(self) -> list[str]: ...

    @property
    def finished(self) -> bool: ...

    def core_requests(self) -> list[EngineCoreRequest]: ...

    def feed(self, output: EngineCoreOutput, /) -> Sequence[_Event]: ...


class Generator:
    """Runs requests on one core. The table holds each request from ``start`` to the end of its ``with`` block."""

    def __init__(self, engine: EngineClient, tokenizer: Tokenizer, limits: GeneratorLimits) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._limits = limits
        self._num_sequences = 0
        self._num_embeds_bytes = 0
        self._running: dict[str, _Work[Any]] = {}
        self._num_unfinished = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __repr__(self) -> str:
        return f"Generator({len(self._running)} requests, {self._num_sequences} sequences)"

    @property
    def num_requests(self) -> int:
        """Requests in the table."""
        return len(self._running)

    @property
    def num_sequences(self) -> int:
        """Of all requests in the table."""
        return self._num_sequences

    def start(self, request: GenerationRequest) -> AbstractContextManager[AsyncIterator[Event]]:
        """Put ``request`` to the core and give its events. However the block is left, the core is told to stop.

        Raises AlreadyExists for the id of a live request, QueueFull and ResourceExhausted when it is too much, and
        Unavailable without a core.
        The events may raise Internal when the core fails at the request, Unavailable when the core dies.
        """
        return self._run(Generation(request, self._tokenizer))

    def start_embedding(self, request: EmbeddingRequest) -> AbstractContextManager[AsyncIterator[Embedded]]:
        """As ``start``; the one event is the vector. It may also raise Unavailable if the request is aborted."""
        return self._run(Embedding(request))

    @contextmanager
    def _run(self, work: _Work[_Event]) -> Iterator[AsyncIterator[_Event]]:
        self._admit(work)
        try:
            stream = self._engine.add(work.core_requests())
            end = FinishReason.ABORT
            try:
                yield self._events(work, stream)
            except Exception:
                end = FinishReason.ERROR
                raise
            finally:
                self._engine.close_stream(stream, end)
        finally:
            self._dismiss(work)

    def check_room(self, num_sequences: int) -> None:
        """Raises QueueFull unless so many more may be live."""
        limit = self._limits.max_sequences
        if self._num_sequences + num_sequences > limit:
            bound = f"{self._num_sequences} of at most {limit} sequences are live"
            raise QueueFull(f"{bound}, the request asks for {num_sequences}")

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

    def _admit(self, work: "_Work[Any]") -> None:
        request = work.request
        self._check(request)
        self._running[request.request_id] = work
        self._num_sequences += request.num_sequences
        self._num_embeds_bytes += request.num_embeds_bytes
        self._num_unfinished += 1
        self._idle.clear()

    def _check(self, request: GenerationRequest | EmbeddingRequest) -> None:
        if request.request_id in self._running:
            raise AlreadyExists(f"request_id {shown(request.request_id)} is the id of a live request")
        limits, num_prompt_tokens, n = self._limits, request.num_prompt_tokens, request.num_sequences
        if isinstance(request, GenerationRequest) and num_prompt_tokens > limits.max_cached_tokens:
            bound = f"the KV cache holds {limits.max_cached_tokens} tokens"
            raise ResourceExhausted(f"{bound}, the prompt has {num_prompt_tokens}", reason="PROMPT_EXCEEDS_KV_CACHE")
        if n > limits.max_sequences:
            bound = f"at most {limits.max_sequences} sequences may be live at once"
            raise ResourceExhausted(f"{bound}, the request asks for {n}", reason="TOO_MANY_SEQUENCES")
        self.check_room(n)
        self._check_embeds(request.num_embeds_bytes)

    def _check_embeds(self, num_bytes: int) -> None:
        limit = self._limits.max_embeds_bytes
        bound = f"live sequences may hold {limit} bytes of prompt_embeds together"
        if num_bytes > limit:
            raise ResourceExhausted(f"{bound}, the request alone has {num_bytes}", reason="TOO_MANY_EMBEDS")
        if num_bytes and self._num_embeds_bytes + num_bytes > limit:
            raise QueueFull(f"{bound} and hold {self._num_embeds_bytes}, the request has {num_bytes}")

    def _dismiss(self, work: "_Work[Any]") -> None:
        del self._running[work.request.request_id]
        self._num_sequences -= work.request.num_sequences
        self._num_embeds_bytes -= work.request.num_embeds_bytes
        if not work.finished:
            self._finish_one()

    def _finish_one(self) -> None:
        self._num_unfinished -= 1
        if not self._num_unfinished:
            self._idle.set()

    async def _events(self, work: _Work[_Event], stream: OutputStream) -> AsyncIterator[_Event]:
        while not work.finished:
            for output in await stream.next():
                events = work.feed(output)
                if work.finished:
                    self._finish_one()
                for event in events:
                    if isinstance(event, Finished) and not output.finished:
                        self._engine.stop(stream, output.request_id, event.finish.reason)
                    yield event
