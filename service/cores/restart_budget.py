"""Whether a core is started again, and how soon. Pure: the clock is given.

it has given something since it was started    at once: whatever ended it, it can serve
it has not                                     after 0.5 s, 1 s, 2 s … at most 10 s, each shortened at random
``max_restarts`` within the window             not again: whoever watches over this process can do more
"""

import random
import time
from collections import deque
from collections.abc import Callable

WINDOW_S = 600.0
_FIRST_DELAY_S = 0.5
_MAX_DELAY_S = 10.0


class RestartBudget:
    """Of one rank. ``max_restarts`` within ``WINDOW_S``."""

    def __init__(self, max_restarts: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_restarts = max_restarts
        self._clock = clock
        self._restarts: deque[float] = deque()
        self._num_useless = 0

    def spend(self, *, was_useful: bool) -> float | None:
        """A core has ended: in how many seconds to start the next, None: not at all."""
        now = self._clock()
        while self._restarts and now - self._restarts[0] >= WINDOW_S:
            self._restarts.popleft()
        if len(self._restarts) >= self._max_restarts:
            return None
        self._restarts.append(now)
        self._num_useless = 0 if was_useful else self._num_useless + 1
        if was_useful:
            return 0.0
        delay_s = min(_FIRST_DELAY_S * 2.0 ** (self._num_useless - 1), _MAX_DELAY_S)
        return delay_s * random.uniform(0.5, 1.0)
