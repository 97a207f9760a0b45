"""One request that runs on a core, from its first output to its last event."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from core.wire.messages import EngineCoreOutput, EngineCoreRequest, FinishReason
from service.embedding import EmbeddingRequest
from service.engine_client import EngineClient
from service.events import Finished
from service.generation_request import GenerationRequest
from service.output_stream import OutputStream

EventT = TypeVar("EventT", covariant=True)


class Work(Protocol[EventT]):
    """A request on its way: a Generation or an Embedding."""

    @property
    def request(self) -> GenerationRequest | EmbeddingRequest: ...

    @property
    def core_ids(self) -> list[str]: ...

    @property
    def finished(self) -> bool: ...

    def core_requests(self) -> list[EngineCoreRequest]: ...

    def feed(self, output: EngineCoreOutput, /) -> Sequence[EventT]: ...


class Run(Generic[EventT]):
    """``work`` at the core. Its caller takes the events whenever its stream says that something has come."""

    __slots__ = ("_engine", "_on_finished", "_stream", "_work", "end")

    def __init__(
        self, work: Work[EventT], stream: OutputStream, engine: EngineClient, on_finished: Callable[[], None]
    ) -> None:
        self.end = FinishReason.ABORT
        """What ends the sequences that have not ended when the caller leaves."""
        self._work = work
        self._stream = stream
        self._engine = engine
        self._on_finished = on_finished

    def __repr__(self) -> str:
        return f"Run({self._work!r}, {self._stream!r})"

    @property
    def finished(self) -> bool:
        """Every sequence has ended."""
        return self._work.finished

    def abort(self) -> None:
        """End what has not ended yet: its last events, which say so, are to be taken."""
        self._engine.abort(self._work.core_ids)

    def take(self) -> Iterator[EventT]:
        """What has happened since the last call, in order; nothing if nothing has come. Take all of it.

        Raises Internal when the core fails at the request, InvalidRequest when it refuses it, Unavailable when it dies.
        """
        work = self._work
        try:
            for output in self._stream.take():
                events = work.feed(output)
                if work.finished:
                    self._on_finished()
                for event in events:
                    if isinstance(event, Finished) and output.finish_reason is None:
                        self._engine.stop(self._stream, output.request_id, event.finish.reason)
                    yield event
        except Exception:
            self.end = FinishReason.ERROR
            raise
