"""How late the event loop is: whatever runs on it for too long makes every call wait, those of health too."""

import asyncio

_INTERVAL_S = 0.1
_WINDOW_S = 15.0
"""As long as Prometheus usually leaves between two looks."""


class LoopLag:
    """Asks to be woken, ten times a second, and notes how late that was. Between ``start`` and ``stop``."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._window_end = 0.0
        self._worst_s = self._worst_before_s = 0.0

    @property
    def worst_s(self) -> float:
        """In this window and the one before: a hiccup is seen for 15 s at least, 30 s at most."""
        return max(self._worst_s, self._worst_before_s)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._arm(loop)

    def stop(self) -> None:
        """May be called twice."""
        if self._timer is not None:
            self._timer.cancel()

    def note(self, now: float, due: float) -> None:
        """It was to be woken at ``due``, and is at ``now``."""
        if now >= self._window_end:
            self._window_end = now + _WINDOW_S
            self._worst_before_s, self._worst_s = self._worst_s, 0.0
        self._worst_s = max(self._worst_s, now - due)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(_INTERVAL_S, self._wake, loop, loop.time() + _INTERVAL_S)

    def _wake(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self.note(loop.time(), due)
        self._arm(loop)
