"""The steps that the executor has and whose results the scheduler has not: the next is made while one runs.

                     schedule          wait         update
busy loop   step k+1 ───────▶ start   ═════▶ step k ──────▶ schedule k+2 …
executor       … step k ─────────────────────────▶ step k+1 ──────────▶ …
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from core.executor.interface import Executor, ModelRunnerOutput
from core.step import Step


class EndedStep(NamedTuple):
    """``seconds``: what it took, from when the executor had nothing else to do."""

    step: Step
    result: ModelRunnerOutput
    seconds: float


class BatchQueue:
    """At most ``max_batches`` steps, in the order in which they were started and will end.

    ``clock``: in seconds.
    """

    def __init__(self, executor: Executor, max_batches: int, clock: Callable[[], float]) -> None:
        self._executor = executor
        self._max_batches = max_batches
        self._clock = clock
        self._started: deque[tuple[Step, float, Future[ModelRunnerOutput]]] = deque()
        self._last_end_s = 0.0

    def __len__(self) -> int:
        return len(self._started)

    @property
    def has_room(self) -> bool:
        return len(self._started) < self._max_batches

    def start(self, step: Step) -> None:
        self._started.append((step, self._clock(), self._executor.execute_model(step.work)))

    def wait_for_oldest(self) -> EndedStep:
        """The step that ends next, with its result. Raises what the step raised."""
        step, start_s, future = self._started.popleft()
        result = future.result()
        begin_s, self._last_end_s = max(start_s, self._last_end_s), self._clock()
        return EndedStep(step, result, self._last_end_s - begin_s)
