"""One request that runs on a core, from its first output to its last event."""

from collections.abc import Callable, Sequence
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

    __slots__ = ("_engine", "_failure", "_on_finished", "_stream", "_work", "end")

    def __init__(
        self, work: Work[EventT], stream: OutputStream, engine: EngineClient, on_finished: Callable[[], None]
    ) -> None:
        self.end = FinishReason.ABORT
        """What ends the sequences that have not ended when the caller leaves."""
        self._work = work
        self._stream = stream
        self._engine = engine
        self._on_finished = on_finished
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        return f"Run({self._work!r}, {self._stream!r})"

    @property
    def finished(self) -> bool:
        """Every sequence has ended."""
        return self._work.finished

    def abort(self) -> None:
        """End what has not ended yet: its last events, which say so, are to be taken."""
        self._engine.abort(self._work.core_ids)

    def take(self) -> Sequence[EventT]:
        """What has happened since the last call, in order; nothing if nothing has come.

        Raises Internal when the core fails at the request, InvalidRequest when it refuses it, Unavailable when it dies,
        each when what came before has been taken.
        """
        if self._failure is not None:
            raise self._failure
        try:
            outputs = self._stream.take()
        except Exception:
            self.end = FinishReason.ERROR
            raise
        if len(outputs) == 1:  # as nearly always
            return self._feed(outputs[0])
        return [event for output in outputs for event in self._feed(output)]

    def _feed(self, output: EngineCoreOutput) -> Sequence[EventT]:
        """What ``output`` tells. Runs for every token; an error is for the next call."""
        try:
            events = self._work.feed(output)
        except Exception as error:
            self._failure, self.end = error, FinishReason.ERROR
            self._stream.fail(error)
            return ()
        if output.finish_reason is not None:
            self._note_finished()
        elif events and isinstance(last := events[-1], Finished):
            self._note_finished()
            self._engine.stop(self._stream, output.request_id, last.finish.reason)
        return events

    def _note_finished(self) -> None:
        if self._work.finished:
            self._on_finished()
