"""What the coordinator knows of the engines' load, and when it is time to tell the front ends. No clock of its own."""

CHANGED_INTERVAL_S = 0.1
"""Between two publications of counts that change."""
UNCHANGED_INTERVAL_S = 5.0
"""Between two that say the same: a front end that has just come learns the counts, and that the coordinator lives."""
SAME_STEP_S = 0.05
"""The counts of a step come from all engines within this time."""

Counts = list[list[int]]
"""[waiting, running] of each engine."""


class LoadBoard:
    """Counts that belong together: those of a step are published once all engines have had time to report it.

    Times are seconds of a monotonic clock, given by the caller.
    """

    def __init__(self, num_engines: int, now: float) -> None:
        self._counts: Counts = [[0, 0] for _ in range(num_engines)]
        self._last_step = (-1, -1)
        self._last_step_began = now
        self._before_last_step: Counts | None = None
        self._has_changed = False
        self._published = now

    @property
    def num_engines(self) -> int:
        return len(self._counts)

    def take(self, engine: int, num_waiting: int, num_running: int, step: tuple[int, int], now: float) -> None:
        """``engine`` has reported after ``step``, its wave and its number in the wave."""
        if step > self._last_step:
            if self._has_changed:
                self._before_last_step = [counts.copy() for counts in self._counts]
            self._last_step, self._last_step_began = step, now
        elif not self._has_changed:
            self._last_step_began = now
        self._counts[engine] = [num_waiting, num_running]
        self._has_changed = True

    def is_due_at(self) -> float:
        """When to publish next, unless more is taken before."""
        if not self._has_changed:
            return self._published + UNCHANGED_INTERVAL_S
        due = self._published + CHANGED_INTERVAL_S
        return due if self._before_last_step is not None else max(due, self._last_step_began + SAME_STEP_S)

    def publish(self, now: float) -> Counts:
        """The counts to publish now."""
        self._published = now
        if self._before_last_step is not None:
            counts, self._before_last_step = self._before_last_step, None
            return counts
        self._has_changed = False
        return [counts.copy() for counts in self._counts]
