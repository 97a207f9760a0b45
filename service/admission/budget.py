"""So much of one thing may be held at once; whoever is refused is told when there will be room."""

import random
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

_DRAIN_WINDOW_S = 30
_CROWD_WINDOW_S = 10
_WHEN_NOTHING_ENDS_S = 5.0
"""Nothing is known then."""
_RETRY_BOUNDS_S = (0.1, 60.0)


class Elsewhere(Protocol):
    """What other processes hold, which have the same limit together with this one."""

    @property
    def held(self) -> int:
        """By all of them."""

    def tell(self, count: int) -> None:
        """This process holds so much."""


class Nowhere:
    """There is no other process."""

    held = 0

    def tell(self, count: int) -> None:
        """Nobody asks."""


def nowhere(_index: int) -> Elsewhere:
    """For each of several things."""
    return Nowhere()


class Budget:
    """``held`` of at most ``limit``. Owned by the event loop."""

    def __init__(
        self,
        limit: int,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        elsewhere: Elsewhere = Nowhere(),  # noqa: B008  it holds nothing
    ) -> None:
        self.limit = limit
        self._elsewhere = elsewhere
        self.held = 0
        self._clock, self._chance = clock, chance
        self._busy_since = clock()
        self._given_back = RecentSum(_DRAIN_WINDOW_S, clock)
        self._busy_ms = RecentSum(_DRAIN_WINDOW_S, clock)
        """Of the times that are over, each counted when it ended."""
        self._refused = RecentSum(_CROWD_WINDOW_S, clock)

    def __repr__(self) -> str:
        return f"Budget({self.held_by_all} of {self.limit})"

    @property
    def held_by_all(self) -> int:
        """Here and elsewhere."""
        return self.held + self._elsewhere.held

    def has_room(self, amount: int) -> bool:
        """Nothing always fits."""
        return amount == 0 or self.held_by_all + amount <= self.limit

    def take(self, amount: int) -> None:
        """Hold so much more. Not checked: ask ``has_room`` first."""
        if not self.held:
            self._busy_since = self._clock()
        self.held += amount
        self._elsewhere.tell(self.held)

    def give_back(self, amount: int) -> None:
        """Hold so much less."""
        if not amount:
            return
        self.held -= amount
        self._elsewhere.tell(self.held)
        self._given_back.add(amount)
        if not self.held:
            self._busy_ms.add(round(1000 * self._busy_now_s()))

    @property
    def num_given_back(self) -> int:
        """Of late."""
        return self._given_back.total()

    @property
    def drain_per_s(self) -> float:
        """What was given back per second of late, idle time not counted; 0 if nothing was.

        What is held elsewhere is taken to drain as what is held here.
        """
        busy_s = self._busy_ms.total() / 1000 + (self._busy_now_s() if self.held else 0.0)
        rate = self._given_back.total() / min(max(busy_s, 1.0), _DRAIN_WINDOW_S)
        return rate * self.held_by_all / self.held if self.held else rate

    def _busy_now_s(self) -> float:
        """Since it last held nothing."""
        return self._clock() - self._busy_since

    def refuse(self, amount: int) -> float:
        """``amount`` is turned away: in how many seconds it should come again.

        When what is too much now will have been given back, and some time more, by chance: those who were refused
        of late come again one after another, as fast as there will be room for them, and not all at once.
        """
        self._refused.add(amount)
        rate = self.drain_per_s
        if not rate:
            return _WHEN_NOTHING_ENDS_S * (1 + self._chance())
        excess = max(self.held_by_all + amount - self.limit, 0)
        delay_s = (excess + self._chance() * self._refused.total()) / rate
        return bounded_delay(delay_s, self._chance)


def bounded_delay(delay_s: float, chance: Callable[[], float] = random.random) -> float:
    """As RetryInfo may tell it: not so short that the refused cost more than the served, and a minute at most."""
    low, high = _RETRY_BOUNDS_S
    return min(max(delay_s, low * (1 + chance())), high)


class RecentSum:
    """Of what was added in the last ``window_s`` seconds, to the second."""

    def __init__(self, window_s: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._window_s = window_s
        self._clock = clock
        self._seconds: deque[list[int]] = deque()
        """Each with what was added in it."""

    def add(self, amount: int) -> None:
        """At this moment."""
        second = int(self._clock())
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1][1] += amount
        else:
            self._seconds.append([second, amount])
            self._forget_old()

    def total(self) -> int:
        """What was added of late."""
        self._forget_old()
        return sum(amount for _, amount in self._seconds)

    def _forget_old(self) -> None:
        oldest = int(self._clock()) - self._window_s
        while self._seconds and self._seconds[0][0] <= oldest:
            self._seconds.popleft()
