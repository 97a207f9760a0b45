"""What the core process asks of an engine: EngineCore fulfils it, and so does the null engine of the benchmarks."""

from collections.abc import Callable
from typing import Any, Protocol

from core.aborts_queue import AbortsQueue
from core.wire.messages import EngineCoreOutputs, EngineCoreRequest, EngineReadyResponse, ParallelConfig


class Lockstep(Protocol):
    """What lockstep with other ranks asks of an engine, on the busy-loop thread."""

    @property
    def is_paused(self) -> bool:
        """Whether the scheduler holds requests back."""
        ...

    @property
    def awaits_pause(self) -> bool:
        """Whether ``Engine.step`` would do nothing but tell those who wait for it that the engine is idle."""
        ...

    @property
    def is_asleep(self) -> bool:
        """Whether the model is not in memory, so that no step can run."""
        ...

    def execute_dummy_batch(self) -> None:
        """Run the model for nobody, so that the other ranks find this one in their collectives."""
        ...


class Engine(Protocol):
    """Everything runs on the busy-loop thread, but ``preprocess_add_request``, which runs on the input thread."""

    aborts_queue: AbortsQueue

    @property
    def ready_response(self) -> EngineReadyResponse: ...

    @property
    def lockstep(self) -> Lockstep | None:
        """None: the model's ranks are independent of one another."""
        ...

    def preprocess_add_request(self, message: EngineCoreRequest, /) -> Any:
        """``message`` validated and made into what ``add_request`` takes. Raises ValueError naming what is wrong."""
        ...

    def add_request(self, request: Any, /) -> None:
        """Raises ValueError if the request cannot be taken (its id is live, it can never fit)."""
        ...

    def abort_requests(self, request_ids: list[str], /) -> None:
        """Drop the requests, without an output. Unknown and finished ids are ignored."""
        ...

    def abort_all(self, client_index: int | None = None) -> dict[int, EngineCoreOutputs]:
        """Finish every request, or every one of a client, as ABORT: the outputs that say so, per client index."""
        ...

    def has_requests(self) -> bool:
        """Whether a step has something to do: requests to run, or finished ones to report."""
        ...

    def num_unfinished_requests(self) -> int: ...

    def request_counts(self) -> tuple[int, int]:
        """How many requests wait, and how many run."""
        ...

    def step(self) -> tuple[dict[int, EngineCoreOutputs], bool]:
        """One step: its outputs per client index, and whether the model ran. An exception is fatal."""
        ...

    def on_progress(self, callback: Callable[[], None]) -> None:
        """Call ``callback``, from any thread, whenever ``has_requests`` may have become true on its own."""
        ...

    def call_utility(self, method: str, args: list[Any], /) -> Any:
        """The result, or a Future of it. Raises an exception whose text is the answer."""
        ...

    def check_integrity(self) -> None:
        """Called when there is nothing left to do. Raises RuntimeError if the engine has lost count; that is fatal."""
        ...

    def reset(self) -> None:
        """Without requests: be as after the load, nothing paused and nothing cached."""
        ...

    def shutdown(self) -> None: ...


EngineFactory = Callable[[ParallelConfig, Callable[[], None]], Engine]
"""Loads a model, for a core in the group that the front end described.

It is also given what to call, from any thread, when the engine's executor is beyond repair.
"""
