"""A histogram that costs a bisection per value; the client library's takes locks, and one event loop needs none."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

SECONDS_TO_FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
SECONDS_PER_TOKEN = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
SECONDS_PER_REQUEST = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
SECONDS_OF_A_BLOCK = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0),
)
TOKENS_PER_STEP = tuple(float(n) for n in (1, *(2**exponent for exponent in range(3, 15))))
TOKENS_PER_REQUEST = tuple(float(digit * 10**exponent) for exponent in range(10) for digit in (1, 2, 5))
SEQUENCES_PER_REQUEST = (1.0, 2.0, 5.0, 10.0, 20.0)


class Histogram:
    """Counts values by the first of ``bounds`` that is not below them. Owned by one thread."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.sum = 0.0
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """By bucket; the last is of what is above all bounds."""

    def observe(self, value: float, count: int = 1) -> None:
        """``value`` has come, ``count`` times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def buckets(self, highest: float = float("inf")) -> list[tuple[str, float]]:
        """Each bound up to ``highest``, and +Inf, as text, with the number of values that are not above it."""
        totals = [*accumulate(self.counts)]
        shown = [(str(bound), float(n)) for bound, n in zip(self.bounds, totals, strict=False) if bound <= highest]
        return [*shown, ("+Inf", float(totals[-1]))]
