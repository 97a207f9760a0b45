"""A step that waits for its turn is made ready before the result of the one before it is given away."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import Event

import pytest

from core.executor.interface import ModelRunnerOutput, SchedulerOutput
from core.executor.model_thread import ModelThread

GIVE_UP_S = 10.0
FIRST, SECOND, EMPTY, BROKEN = (SchedulerOutput([], [], {}, [name]) for name in ("first", "second", "empty", "broken"))


class Steps:
    """FIRST ends when it is let go; the others see how it stands with its result, before and after they are ready."""

    def __init__(self) -> None:
        self.let_go = Event()
        self.first: Future[ModelRunnerOutput] | None = None
        self.has_been_given: list[bool] = []

    def execute(self, work: SchedulerOutput, before_forward: Callable[[], None]) -> ModelRunnerOutput:
        if work is FIRST:
            assert self.let_go.wait(GIVE_UP_S)
            return ModelRunnerOutput()
        assert self.first is not None
        self.has_been_given.append(self.first.done())
        if work is BROKEN:
            raise RuntimeError("broken")
        if work is SECOND:
            before_forward()
            self.has_been_given.append(self.first.done())
        return ModelRunnerOutput()


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def thread(steps: Steps) -> Iterator[ModelThread]:
    thread = ModelThread(steps.execute)
    yield thread
    thread.shutdown()


def test_a_result_is_held_until_the_next_step_is_ready(steps: Steps, thread: ModelThread) -> None:
    """And given before its model computes."""
    steps.first, second = thread.start(FIRST), thread.start(SECOND)
    steps.let_go.set()
    second.result(GIVE_UP_S)
    assert steps.has_been_given == [False, True]


def test_without_another_step_it_is_given_at_once(steps: Steps, thread: ModelThread) -> None:
    steps.let_go.set()
    steps.first = thread.start(FIRST)
    steps.first.result(GIVE_UP_S)


@pytest.mark.parametrize("work", [EMPTY, BROKEN])
def test_it_is_given_too_if_the_next_step_computes_nothing(
    steps: Steps, thread: ModelThread, work: SchedulerOutput
) -> None:
    """Because there was nothing to compute, or something went wrong."""
    steps.first, last = thread.start(FIRST), thread.start(work)
    steps.let_go.set()
    assert (last.exception(GIVE_UP_S) is not None) == (work is BROKEN)
    assert steps.first.done()
    assert steps.has_been_given == [False]
