"""Waiting for a server, whichever kind of channel leads to it."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sluicegate_client.errors import DeadlineExceededError

WATCH_PAUSE_S = 0.1
"""Between two health Watches, for a server that ends them early."""

_LONGEST_S = 1e9
"""30 years. gRPC's clock ends somewhere beyond: it would take a longer timeout for one that has passed."""


class Deadline:
    """A moment ``timeout_s`` from now. Raises ValueError for what is no number."""

    def __init__(self, timeout_s: float) -> None:
        if math.isnan(timeout_s):
            raise ValueError("timeout must be a number of seconds, got nan")
        self._end = time.monotonic() + min(timeout_s, _LONGEST_S)

    @property
    def remaining_s(self) -> float:
        """Never below zero."""
        return max(0.0, self._end - time.monotonic())


@contextmanager
def readiness_deadline(address: str, timeout_s: float) -> Iterator[Deadline]:
    """Its passing is told as what it means here."""
    try:
        yield Deadline(timeout_s)
    except DeadlineExceededError as error:
        message = f"the server at {address} was not ready within {timeout_s:g} s: does it run, or still load?"
        raise DeadlineExceededError(message, error.code) from error
