"""The thread that runs the model, one step after the other.

    step k     … forward ─ choose tokens ─┐
    step k+1                              └ make the batch ─┬─ forward …
    whoever waits for step k                                └▶ its result

Whoever takes a result needs the interpreter, and so does making the next batch. If a step waits, its batch comes first:
the model then computes without the interpreter, and the result is taken meanwhile.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from core.executor.interface import ModelRunnerOutput, SchedulerOutput
from core.model.threads import use_available_cpus

Execute = Callable[[SchedulerOutput, Callable[[], None]], ModelRunnerOutput]
"""Runs a step, and calls back just before the model computes, if it does."""
_T = TypeVar("_T")


class ModelThread:
    """Steps, and whatever else must not run beside them. Started when made."""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        # How many threads torch uses is, in part, each thread's own affair.
        self._thread = ThreadPoolExecutor(1, "model", initializer=use_available_cpus)
        self._thread.submit(int).result()  # It starts now: later the system may have none to give.
        # Each written by one thread: whoever calls ``start``, and the model's.
        self._num_started = self._num_run = 0
        self._held: tuple[Future[ModelRunnerOutput], ModelRunnerOutput] | None = None

    def start(self, work: SchedulerOutput) -> "Future[ModelRunnerOutput]":
        """Run a step after those that were started before."""
        future: Future[ModelRunnerOutput] = Future()
        self._thread.submit(self._run, work, future)
        self._num_started += 1
        return future

    def submit(self, call: Callable[..., _T], *args: Any) -> "Future[_T]":
        """Call it after the steps that were started before."""
        return self._thread.submit(call, *args)

    def shutdown(self) -> None:
        """Waits for what was started."""
        self._thread.shutdown()

    def _run(self, work: SchedulerOutput, future: "Future[ModelRunnerOutput]") -> None:
        try:
            output = self._execute(work, self._give)
        except BaseException as error:  # Native code raises such, and whoever waits must be told.
            self._give()
            future.set_exception(error)
        else:
            self._give()  # if nothing was to compute
            self._held = future, output
        self._num_run += 1
        if self._num_run >= self._num_started:
            self._give()

    def _give(self) -> None:
        """Let whoever waits have the result that is held."""
        if self._held is not None:
            (future, output), self._held = self._held, None
            future.set_result(output)
