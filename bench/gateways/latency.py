"""How long tokens took from the core to the client: both read one clock."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def added_latencies_s(arrivals: Sequence[tuple[float, int]], steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each token of one stream the time from the core's step to its arrival.

    ``arrivals``: time and number of tokens of each message. ``steps`` [n]: when the core made its steps, rising; every
    step has given the stream one token, from some step on. That is taken to be the last with which no token comes
    before it was made: right, if some token of the stream took less time than there is between two steps.
    """
    times = np.repeat([time for time, _ in arrivals], [num_tokens for _, num_tokens in arrivals])
    if not times.size:
        return times
    latest = np.searchsorted(steps, times, side="right") - 1 - np.arange(times.size)
    first = int(latest.min())
    return times - steps[first : first + times.size]
