"""A core's time stamps as points in time: its clock is monotonic, and of another machine maybe."""

import time

_SAME_CLOCK_S = 1.0
"""What a message may take from a core on this machine. Two machines that started within a second differ as little."""


class CoreClock:
    """Knows the clock of one core by one message of it: what it said the time was, and when it was heard here.

    On one machine both processes read the same clock. Of another one's the way of the message is the error.
    """

    def __init__(self, sent_at: float, heard_at: float) -> None:
        """``sent_at``: the core's monotonic clock, ``heard_at``: ours."""
        ahead_s = heard_at - sent_at
        skew_s = 0.0 if 0 <= ahead_s < _SAME_CLOCK_S else ahead_s
        self._to_wall_s = time.time() - time.monotonic() + skew_s

    def time_ns(self, timestamp: float) -> int:
        """Nanoseconds since the epoch."""
        return int((timestamp + self._to_wall_s) * 1e9)
