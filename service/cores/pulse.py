"""Whether a core still answers. Pure: neither clock nor sockets.

Time is counted in beats, four to the time-out. A core that was not heard for a beat is asked a question; one that is
not heard for four of them is silent, until it is heard again. Beats are counted and no times compared: a gateway that
was itself stopped for an hour finds that one beat has passed, and reads what has come in before the next.

A core answers between two steps only, so a step that takes longer than the time-out looks like a core that hangs. But
a step is bounded by ``--max-num-batched-tokens``, however long a prompt is: a prefill of ten seconds is many steps,
each followed by a message or by the answer. The default of 30 s is an order of magnitude above any sensible step.
"""

BEATS_PER_TIMEOUT = 4


class Pulse:
    """Of one core. ``is_silent``: it was not heard for the whole time-out. ``num_missed``: beats, one is no sign."""

    def __init__(self) -> None:
        self.is_silent = False
        self.num_missed = -1

    def heard(self) -> bool:
        """A message came. Whether it ends a silence."""
        was_silent, self.is_silent, self.num_missed = self.is_silent, False, -1
        return was_silent

    def beat(self) -> bool:
        """A beat has passed. Whether the core should be asked if it is there: once in a silence."""
        self.num_missed += 1
        self.is_silent = self.num_missed >= BEATS_PER_TIMEOUT
        return self.num_missed == 1
