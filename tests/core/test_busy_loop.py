"""What the busy loop does between and around steps, without threads: the queues are filled beforehand."""

import logging
import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from bench.null_engine import NullEngine, NullEngineConfig
from core.busy_loop import NOTHING_RAN_SLEEP_S, BusyLoop, EngineFailedError
from core.intake import AddedRequest, InputQueue, LostFrontEnd, OutputQueue
from core.scheduler import Outputs
from core.shutdown import Shutdown, ShutdownState
from core.wire.messages import EngineCoreOutput, FinishReason, RequestType, UtilityCall, UtilityOutput
from tests.core.builders import make_engine
from tests.core.front_end import make_request

LAST_CALL = UtilityCall(0, 0, "stop", [])


class StoppableEngine(NullEngine):
    """Requests a shutdown when a "stop" utility is called: the loop then returns."""

    def __init__(self, shutdown: Shutdown, config: NullEngineConfig | None = None) -> None:
        super().__init__(config)
        self.shutdown_state = shutdown
        self.pending: Future[str] = Future()
        self.num_checks = 0
        self.num_idle_steps = 0

    def step(self) -> tuple[Outputs, bool]:
        outputs, has_run = super().step()
        self.num_idle_steps += not has_run
        return outputs, has_run

    def check_integrity(self) -> None:
        self.num_checks += 1

    def call_utility(self, method: str, args: list[Any]) -> Any:
        match method:
            case "stop":
                self.shutdown_state.request()
                return None
            case "later":
                return self.pending
            case "finish later":
                self.pending.set_result("done")
                return None
            case "fail later":
                self.pending.set_exception(ValueError("cannot pause"))
                return None
        return super().call_utility(method, args)


class Loop:
    """A busy loop and its queues."""

    def __init__(self, timeout_s: float = 600.0, tokens_per_second: float = 0.0) -> None:
        self.shutdown = Shutdown(timeout_s)
        self.shutdown.start_running()
        self.engine = StoppableEngine(self.shutdown, NullEngineConfig(tokens_per_second=tokens_per_second))
        self.input_queue: InputQueue = queue.SimpleQueue()
        self.output_queue: OutputQueue = queue.SimpleQueue()
        self.loop = BusyLoop(self.engine, self.input_queue, self.output_queue, self.shutdown)

    def add(self, request_id: str, client_index: int = 0, **params: Any) -> None:
        request = self.engine.preprocess_add_request(make_request(request_id, client_index, **params))
        self.input_queue.put((RequestType.ADD, AddedRequest(request_id, client_index, request)))

    def call(self, method: str, call_id: int = 1) -> None:
        self.input_queue.put((RequestType.UTILITY, UtilityCall(0, call_id, method, [])))

    def run_to_the_end(self) -> None:
        """Run with what was put in, then drain and finish."""
        self.input_queue.put((RequestType.UTILITY, LAST_CALL))
        self.loop.run()
        self.loop.finish()

    def sent(self) -> list[Any]:
        """Everything in the output queue but the answer to the call that stops the loop."""
        items = [self.output_queue.get_nowait() for _ in range(self.output_queue.qsize())]
        return [item for item in items if not (item[1].utility_output and item[1].utility_output.call_id == 0)]

    def outputs(self) -> list[tuple[int, EngineCoreOutput]]:
        return [(client_index, output) for client_index, message in self.sent() for output in message.outputs]

    def answers(self) -> list[UtilityOutput]:
        return [message.utility_output for _, message in self.sent() if message.utility_output]


def test_requests_are_run() -> None:
    """Requests in the queue are run to their end, each for its client."""
    loop = Loop()
    loop.add("a", client_index=0, max_tokens=2)
    loop.add("b", client_index=1, max_tokens=1)
    loop.run_to_the_end()
    outputs = loop.outputs()
    assert [(client, output.request_id) for client, output in outputs] == [(0, "a"), (1, "b"), (0, "a")]
    assert [output.finish_reason for _, output in outputs] == [None, FinishReason.LENGTH, FinishReason.LENGTH]


def test_steps_that_run_nothing_are_not_spun_through() -> None:
    """Between two of them the loop sleeps: others get their turn, though there are requests."""
    loop = Loop(tokens_per_second=50)
    loop.add("a", max_tokens=3)
    start = time.monotonic()
    loop.run_to_the_end()
    assert 0 < loop.engine.num_idle_steps <= 1 + (time.monotonic() - start) / NOTHING_RAN_SLEEP_S


def test_a_lost_front_end_loses_its_requests() -> None:
    """They end, each with its last output should the front end come back; those of others go on."""
    loop = Loop()
    loop.add("a", client_index=0, max_tokens=2)
    loop.add("b", client_index=1, max_tokens=1000)
    loop.input_queue.put((RequestType.FRONT_END_LOST, LostFrontEnd(1, is_last=False)))
    loop.run_to_the_end()
    ends = [(client, output.request_id, output.finish_reason) for client, output in loop.outputs() if output.finished]
    assert ends == [(1, "b", FinishReason.ABORT), (0, "a", FinishReason.LENGTH)]


def test_a_front_end_that_ends_with_the_core(caplog: pytest.LogCaptureFixture) -> None:
    """Who signals all processes has nothing to be warned of."""
    loop = Loop()
    loop.shutdown.request()
    loop.add("a", max_tokens=2)
    loop.input_queue.put((RequestType.FRONT_END_LOST, LostFrontEnd(1, is_last=False)))
    with caplog.at_level(logging.WARNING):
        loop.loop.run()
    assert caplog.messages == []


def test_the_last_front_end_is_lost() -> None:
    """The loop returns, without a shutdown, and what came in just before has its end too."""
    loop = Loop(tokens_per_second=1)
    loop.add("a", max_tokens=1000)
    loop.input_queue.put((RequestType.FRONT_END_LOST, LostFrontEnd(0, is_last=True)))
    loop.add("b", max_tokens=1000)
    loop.loop.run()
    loop.loop.finish()
    assert not loop.shutdown.requested
    assert {o.request_id: o.finish_reason for _, o in loop.outputs()} == dict.fromkeys("ab", FinishReason.ABORT)


def test_frozen_requests_have_their_end() -> None:
    """A pause that keeps requests does not keep the core from ending, nor them from being ended as aborted."""
    shutdown, engine = Shutdown(600), make_engine()
    shutdown.start_running()
    inputs: InputQueue = queue.SimpleQueue()
    outputs: OutputQueue = queue.SimpleQueue()
    request = engine.preprocess_add_request(make_request("a", max_tokens=9))
    inputs.put((RequestType.ADD, AddedRequest("a", 0, request)))
    inputs.put((RequestType.UTILITY, UtilityCall(0, 1, "pause_scheduler", ["keep", False])))
    shutdown.request()
    engine.add_request(engine.preprocess_add_request(make_request("frozen", max_tokens=9)))
    engine.call_utility("pause_scheduler", ["keep", False])
    loop = BusyLoop(engine, inputs, outputs, shutdown)
    loop.run()
    loop.finish()
    ends = [o for _ in range(outputs.qsize()) for o in outputs.get()[1].outputs]  # type: ignore[index, union-attr]
    assert {o.request_id: o.finish_reason for o in ends} == dict.fromkeys(["a", "frozen"], FinishReason.ABORT)


def test_abort_behind_its_add() -> None:
    """An abort in the queue finds the request that was put in just before it."""
    loop = Loop()
    loop.add("a", max_tokens=1000)
    loop.input_queue.put((RequestType.ABORT, ["a"]))
    loop.run_to_the_end()
    assert loop.outputs() == []


class EndingQueue(queue.SimpleQueue[Any]):
    """Requests a shutdown when somebody would wait on it."""

    def __init__(self, shutdown: Shutdown) -> None:
        self.shutdown = shutdown

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self.empty():
            return super().get(block, timeout)
        self.shutdown.request()
        return RequestType.WAKEUP, None


def test_stale_aborts_are_forgotten() -> None:
    """Aborts of finished requests do not pile up: before it waits for input, the loop forgets them."""
    engine, shutdown = NullEngine(), Shutdown()
    shutdown.start_running()
    engine.aborts_queue.put(["a"])
    BusyLoop(engine, EndingQueue(shutdown), queue.SimpleQueue(), shutdown).run()
    assert engine.aborts_queue.empty()


def test_integrity_is_checked_when_the_work_is_done() -> None:
    """Once, however many steps there were."""
    loop = Loop()
    loop.add("a", max_tokens=5)
    loop.add("b", max_tokens=3)
    loop.run_to_the_end()
    assert loop.engine.num_checks == 1


def test_duplicate_id() -> None:
    """What the engine cannot add ends with an error; the loop goes on."""
    loop = Loop()
    loop.add("a", client_index=1)
    loop.add("a", client_index=1)
    loop.run_to_the_end()
    client_index, refused = loop.outputs()[0]
    assert (client_index, refused.finish_reason) == (1, FinishReason.ERROR)
    assert refused.stop_reason == "refused: request_id 'a' is that of a live request"


def test_bug_in_add_request() -> None:
    """An exception of any kind while a request is added ends that request only."""
    loop = Loop()
    loop.input_queue.put((RequestType.ADD, AddedRequest("broken", 0, None)))
    loop.add("good", max_tokens=1)
    loop.run_to_the_end()
    assert [(output.request_id, output.finish_reason) for _, output in loop.outputs()] == [
        ("broken", FinishReason.ERROR),
        ("good", FinishReason.LENGTH),
    ]


def test_utilities() -> None:
    """A call is answered with its result or with why it failed."""
    loop = Loop()
    loop.call("is_sleeping", call_id=5)
    loop.call("explode", call_id=6)
    loop.run_to_the_end()
    assert loop.answers() == [
        UtilityOutput(5, result=(None, False)),
        UtilityOutput(6, failure_message="Call to explode method failed: unknown method, arguments []"),
    ]


@pytest.mark.parametrize(
    ("end", "answer"),
    [
        ("finish later", UtilityOutput(5, result=(None, "done"))),
        ("fail later", UtilityOutput(5, failure_message="cannot pause")),
    ],
)
def test_utility_that_takes_time(end: str, answer: UtilityOutput) -> None:
    """A call whose result is a Future is answered when that completes; others do not wait for it."""
    loop = Loop()
    for call_id, method in ((5, "later"), (6, "is_sleeping"), (7, end)):
        loop.call(method, call_id)
    loop.run_to_the_end()
    answers = loop.answers()
    assert [found.call_id for found in answers] == [6, 5, 7]
    assert answers[1] == answer


def test_executor_failure() -> None:
    """The loop ends with an exception when the executor, or a thread, is gone."""
    loop = Loop()
    loop.input_queue.put((RequestType.EXECUTOR_FAILED, "the input thread died"))
    with pytest.raises(EngineFailedError, match="the input thread died"):
        loop.loop.run()


def test_drain() -> None:
    """With time to finish, running requests end by themselves; what comes later is refused."""
    loop = Loop(timeout_s=600)
    loop.add("running", max_tokens=50)
    loop.input_queue.put((RequestType.UTILITY, LAST_CALL))
    loop.add("late", client_index=1)
    loop.call("is_sleeping", call_id=9)
    loop.loop.run()
    loop.loop.finish()
    messages = loop.sent()
    ends = {output.request_id: output.finish_reason for _, message in messages for output in message.outputs}
    assert ends == {"late": FinishReason.ABORT, "running": FinishReason.LENGTH}
    assert [message.finished_requests for client_index, message in messages if client_index == 1] == [["late"]]
    failures = [message.utility_output.failure_message for _, message in messages if message.utility_output]
    assert failures == ["Server shutting down"]


def test_abort_shutdown() -> None:
    """Without time to finish, every request ends as aborted, grouped by client."""
    loop = Loop(timeout_s=0)
    for request_id, client_index in (("a", 0), ("b", 1), ("c", 0)):
        loop.add(request_id, client_index, max_tokens=5000)
    loop.run_to_the_end()
    aborted = [
        (client_index, message.finished_requests, [output.finish_reason for output in message.outputs])
        for client_index, message in loop.sent()
        if message.finished_requests
    ]
    assert aborted == [(0, ["a", "c"], [FinishReason.ABORT] * 2), (1, ["b"], [FinishReason.ABORT])]


def test_drain_deadline() -> None:
    """A request that runs longer than the shutdown timeout is aborted."""
    loop = Loop(timeout_s=0.05, tokens_per_second=100)
    loop.add("a", max_tokens=5000)
    loop.run_to_the_end()
    assert loop.outputs()[-1][1].finish_reason is FinishReason.ABORT


def test_orphan_does_not_drain() -> None:
    """Without a gateway there is nobody to drain for."""
    loop = Loop(timeout_s=600)
    loop.shutdown.orphaned = True
    loop.add("a", max_tokens=5000)
    loop.run_to_the_end()
    assert loop.outputs()[-1][1].finish_reason is FinishReason.ABORT


def test_what_comes_after_the_last_step_is_answered() -> None:
    """Input that was read before the input thread stopped, but after the loop ended, is refused, not lost."""
    loop = Loop()
    loop.input_queue.put((RequestType.UTILITY, LAST_CALL))
    loop.loop.run()
    loop.add("late")
    loop.loop.finish()
    assert [(output.request_id, output.finish_reason) for _, output in loop.outputs()] == [("late", FinishReason.ABORT)]


def test_every_output_is_stamped() -> None:
    """Whatever the engine left out, each message says when it was made."""
    loop = Loop(timeout_s=0)
    loop.add("a", max_tokens=5000)
    loop.run_to_the_end()
    assert all(message.timestamp > 0 for _, message in loop.sent())
    assert loop.shutdown.state is ShutdownState.SHUTTING_DOWN


def test_calls_that_wait_are_answered_before_the_engine_dies() -> None:
    """The one whose result was to come later, and the one that was still in the queue: no caller waits forever."""
    loop = Loop()
    loop.call("later", 1)
    loop.input_queue.put((RequestType.EXECUTOR_FAILED, "it is gone"))
    loop.call("get_supported_tasks", 2)
    with pytest.raises(EngineFailedError):
        loop.loop.run()
    loop.engine.pending.set_result("too late")
    assert loop.answers() == [UtilityOutput(call_id, "the engine died") for call_id in (1, 2)]


def test_calls_that_wait_are_answered_at_the_end() -> None:
    """A result that has not come when the core shuts down will not come."""
    loop = Loop()
    loop.call("later", 1)
    loop.run_to_the_end()
    assert loop.answers() == [UtilityOutput(1, "Server shutting down")]


def test_an_engine_that_has_work_on_its_own_wakes_the_loop() -> None:
    """As when a request's grammar is there: no input need come for that."""

    class ProgressingEngine(StoppableEngine):
        def on_progress(self, callback: Callable[[], None]) -> None:
            self.progress = callback

    shutdown, input_queue = Shutdown(600.0), queue.SimpleQueue()
    engine = ProgressingEngine(shutdown)
    BusyLoop(engine, input_queue, queue.SimpleQueue(), shutdown)
    engine.progress()
    assert input_queue.get_nowait() == (RequestType.WAKEUP, None)
