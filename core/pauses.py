"""Pauses of the scheduler, and the callers who wait to hear that the engine is idle."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from core.pause_state import PauseMode


class Pausable(Protocol):
    """What can be paused between two steps."""

    def pause(self, mode: PauseMode) -> None: ...

    def resume(self) -> None: ...


class Pauses:
    """Owned by the busy loop. A pause is answered once nothing runs, and all outputs of before are on their way."""

    def __init__(self, scheduler: Pausable) -> None:
        self._scheduler = scheduler
        self._unanswered: list[tuple[Future[None], Callable[[], None]]] = []

    @property
    def is_pausing(self) -> bool:
        """Whether somebody still waits for the engine to be idle."""
        return bool(self._unanswered)

    def pause(self, mode: PauseMode, when_idle: Callable[[], None]) -> "Future[None]":
        """Pause at once. The Future has the outcome of ``when_idle``, which is called once the engine is idle.

        A pause on top of another one sets a new mode, and both are answered at the same moment.
        """
        self._scheduler.pause(mode)
        answer: Future[None] = Future()
        self._unanswered.append((answer, when_idle))
        return answer

    def settle(self) -> None:
        """The engine is idle: answer the pauses, in their order."""
        for answer, when_idle in self._take():
            try:
                when_idle()
            except Exception as error:
                answer.set_exception(error)
            else:
                answer.set_result(None)

    def resume(self) -> None:
        """Schedule again. Pauses that were not answered yet fail: their idle moment may never come."""
        self._scheduler.resume()
        for answer, _ in self._take():
            answer.set_exception(RuntimeError("resumed before the engine was idle"))

    def _take(self) -> list[tuple[Future[None], Callable[[], None]]]:
        unanswered, self._unanswered = self._unanswered, []
        return unanswered
