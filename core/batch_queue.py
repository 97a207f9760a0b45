"""The steps that the executor has and whose results the scheduler has not: the next is made while one runs.

                     schedule          wait         update
busy loop   step k+1 ───────▶ start   ═════▶ step k ──────▶ schedule k+2 …
executor       … step k ─────────────────────────▶ step k+1 ──────────▶ …
"""

from collections import deque
from concurrent.futures import Future

from core.executor.interface import Executor, ModelRunnerOutput
from core.step import Step


class BatchQueue:
    """At most ``max_batches`` steps, in the order in which they were started and will end."""

    def __init__(self, executor: Executor, max_batches: int) -> None:
        self._executor = executor
        self._max_batches = max_batches
        self._started: deque[tuple[Step, Future[ModelRunnerOutput]]] = deque()

    def __len__(self) -> int:
        return len(self._started)

    @property
    def has_room(self) -> bool:
        return len(self._started) < self._max_batches

    def start(self, step: Step) -> None:
        self._started.append((step, self._executor.execute_model(step.work)))

    def wait_for_oldest(self) -> tuple[Step, ModelRunnerOutput]:
        """The step that ends next, with its result. Raises what the step raised."""
        step, future = self._started.popleft()
        return step, future.result()
