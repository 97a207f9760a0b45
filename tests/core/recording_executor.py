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
