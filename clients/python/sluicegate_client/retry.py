"""When a call is made again that has failed for now, whichever kind of channel it goes over."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from sluicegate_client.errors import SluicegateError, TlsError, UnavailableError
from sluicegate_client.readiness import Deadline

_MOST_DOUBLINGS = 60
"""More than any wait takes, and few enough for a float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Calls that fail before the server has begun to answer are made again: when the time has passed that it asks for,
    or, where it does not say when or no server was reached, after a backoff that doubles.

    All attempts lie within the call's ``timeout``: the error is raised at once if that would pass during the wait.
    ``Retry(max_attempts=1)`` makes no call again. Raises ValueError for what cannot be.
    """

    max_attempts: int = 5
    """With the first one."""
    max_wait_s: float = 30.0
    """A server that asks for a longer wait is not waited for."""
    backoff_s: float = 0.2
    """The first wait for which no server says how long; the next ones double up to ``max_wait_s``, less some chance."""
    on_wait: Callable[[SluicegateError, float], None] | None = None
    """Called with the error and the seconds before each wait; what it raises ends the call."""

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, got {self.max_attempts}")
        for name, seconds in (("max_wait_s", self.max_wait_s), ("backoff_s", self.backoff_s)):
            if not seconds >= 0:
                raise ValueError(f"{name} must be at least 0, got {seconds}")


class Attempts:
    """Those of one call."""

    def __init__(self, retry: Retry, timeout_s: float | None) -> None:
        self._retry = retry
        self._deadline = None if timeout_s is None else Deadline(timeout_s)
        self._num_failed = 0

    @property
    def remaining_s(self) -> float | None:
        """The timeout of the next one."""
        return None if self._deadline is None else self._deadline.remaining_s

    def succeed(self) -> None:
        """The latest one got somewhere: those that are to come are counted anew."""
        self._num_failed = 0

    def wait_s(self, error: SluicegateError) -> float:
        """Returns how long to wait after ``error`` before the next one; raises it when there is to be none.

        A note of the error says so where there were as many as may be.
        """
        self._num_failed += 1
        asked_s = self._asked_s(error)
        if asked_s is None or asked_s > self._retry.max_wait_s:
            raise error
        if self._num_failed >= self._retry.max_attempts:
            if self._num_failed > 1:
                error.add_note(f"gave up after {self._num_failed} tries")
            raise error
        # Those that were refused together should not come back together.
        wait_s = asked_s * random.uniform(1.0, 1.1)
        if self._deadline is not None and wait_s >= self._deadline.remaining_s:
            raise error
        if self._retry.on_wait is not None:
            self._retry.on_wait(error, wait_s)
        return wait_s

    def _asked_s(self, error: SluicegateError) -> float | None:
        if error.retry_after:
            return error.retry_after
        if error.retry_after is None and (not isinstance(error, UnavailableError) or isinstance(error, TlsError)):
            return None
        doubled = 2.0 ** min(self._num_failed - 1, _MOST_DOUBLINGS)
        return min(self._retry.backoff_s * doubled, self._retry.max_wait_s) * random.uniform(0.5, 1.0)
