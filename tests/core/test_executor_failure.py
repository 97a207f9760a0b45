"""An executor that is gone ends the busy loop, whatever that is doing, and nobody waits for its steps."""

import queue
from typing import Any

import pytest

from core.busy_loop import BusyLoop, EngineFailedError
from core.executor.fake import FakeExecutor
from core.executor.fake_request import FakeExecutorError
from core.intake import AddedRequest, OutputQueue
from core.shutdown import Shutdown
from core.wire.messages import RequestType
from core.wire.sampling_params import SamplingParams
from tests.core.builders import make_engine, make_message


class FailingQueue(queue.SimpleQueue[Any]):
    """The executor fails when somebody would wait on it."""

    def __init__(self, executor: FakeExecutor) -> None:
        self.executor = executor

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if self.empty():
            self.executor.fail()
        return super().get(block, timeout)


class Core:
    """A busy loop over a fake executor, which fails in step ``fails_in_step`` or when it is told to."""

    def __init__(self, fails_in_step: int | None = None, async_scheduling: bool = True) -> None:
        self.fails_in_step = fails_in_step
        self.executor = FakeExecutor(on_step=self._on_step, runs_late=True)
        self.engine = make_engine(executor=self.executor, async_scheduling=async_scheduling)
        self.input_queue = FailingQueue(self.executor)
        self.output_queue: OutputQueue = queue.SimpleQueue()
        self.executor.on_failure(lambda: self.input_queue.put((RequestType.EXECUTOR_FAILED, "the executor failed")))
        shutdown = Shutdown()
        shutdown.start_running()
        self.loop = BusyLoop(self.engine, self.input_queue, self.output_queue, shutdown)

    def _on_step(self, number: int) -> None:
        if number == self.fails_in_step:
            self.executor.fail()

    def add(self, max_tokens: int) -> None:
        message = make_message(params=SamplingParams(max_tokens=max_tokens))
        request = self.engine.preprocess_add_request(message)
        self.input_queue.put((RequestType.ADD, AddedRequest(request.request_id, 0, request)))

    def num_tokens(self) -> int:
        items = [self.output_queue.get_nowait() for _ in range(self.output_queue.qsize())]
        messages = [item[1] for item in items if isinstance(item, tuple)]
        return sum(len(output.new_token_ids) for message in messages for output in message.outputs)


@pytest.mark.parametrize("async_scheduling", [False, True], ids=["sync", "async"])
def test_a_failure_in_a_step_ends_the_loop_with_that_step(async_scheduling: bool) -> None:
    """What the steps before it gave is out; the one that runs, and the one behind it, are not waited for."""
    core = Core(fails_in_step=3, async_scheduling=async_scheduling)
    core.add(max_tokens=9)
    with pytest.raises(FakeExecutorError, match="step 3: the executor has failed"):
        core.loop.run()
    assert core.num_tokens() == 2


def test_a_failure_between_steps_ends_the_loop_before_the_next_one() -> None:
    """The notice waits in the input queue, which is emptied before each step."""
    core = Core()
    core.add(max_tokens=9)
    core.input_queue.put((RequestType.WAKEUP, None))
    core.executor.fail()
    with pytest.raises(EngineFailedError, match="the executor failed"):
        core.loop.run()
    assert core.num_tokens() == 0


def test_a_failure_wakes_the_loop_that_waits_for_input() -> None:
    """With nothing to do, after everything asked for was done."""
    core = Core()
    core.add(max_tokens=2)
    with pytest.raises(EngineFailedError, match="the executor failed"):
        core.loop.run()
    assert core.num_tokens() == 2
