"""A fake executor that keeps what it was asked for."""

from collections import Counter
from concurrent.futures import Future
from typing import Any

from core.executor.fake import FakeExecutor
from core.executor.interface import ModelRunnerOutput, SchedulerOutput


class RecordingExecutor(FakeExecutor):
    """``steps``: how many tokens of which request each step was to compute."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.steps: list[dict[str, int]] = []

    def execute_model(self, scheduler_output: SchedulerOutput) -> "Future[ModelRunnerOutput]":
        self.steps.append(scheduler_output.num_scheduled_tokens.copy())
        return super().execute_model(scheduler_output)

    @property
    def num_tokens(self) -> dict[str, int]:
        """By request, in all steps together."""
        return dict(sum(map(Counter, self.steps), Counter[str]()))


class TimedExecutor(RecordingExecutor):
    """On its own clock a step takes ``base_s``, and ``token_s`` for each token."""

    def __init__(self, base_s: float, token_s: float, **settings: Any) -> None:
        super().__init__(on_step=self._pass_time, **settings)
        self._base_s = base_s
        self._token_s = token_s
        self.now_s = 0.0

    def clock(self) -> float:
        """Seconds."""
        return self.now_s

    def _pass_time(self, number: int) -> None:
        num_tokens = sum(self.steps[number - 1].values())
        self.now_s += self._base_s * bool(num_tokens) + self._token_s * num_tokens
