"""One step of FakeExecutor."""

from collections.abc import Callable
from concurrent.futures import Future

from core.executor.interface import ModelRunnerOutput


class FakeStep(Future[ModelRunnerOutput]):
    """The result of a step, which runs by then at the latest."""

    def __init__(self, run_until: "Callable[[FakeStep], None]") -> None:
        super().__init__()
        self._run_until = run_until

    def result(self, timeout: float | None = None) -> ModelRunnerOutput:
        self._run_until(self)
        return super().result(timeout)
