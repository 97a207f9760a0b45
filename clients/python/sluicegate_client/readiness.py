"""Waiting for a server, whichever kind of channel leads to it."""

import time

WATCH_PAUSE_S = 0.1
"""Between two health Watches, for a server that ends them early."""


class Deadline:
    """A moment ``timeout_s`` from now."""

    def __init__(self, timeout_s: float) -> None:
        self._end = time.monotonic() + timeout_s

    @property
    def remaining_s(self) -> float:
        """Never below zero."""
        return max(0.0, self._end - time.monotonic())
