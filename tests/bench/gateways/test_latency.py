"""From the core's step to the client."""

import numpy as np
import pytest

from bench.gateways.latency import added_latencies_s

STEPS = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        ([(1.1, 1), (2.2, 1), (3.1, 1)], [0.1, 0.2, 0.1]),
        ([(1.1, 1), (4.5, 3)], [0.1, 2.5, 1.5, 0.5]),
        ([(2.9, 1), (3.05, 1)], [0.9, 0.05]),
        ([], []),
    ],
    ids=["one by one", "merged", "the first was late", "none"],
)
def test_latencies(arrivals: list[tuple[float, int]], expected: list[float]) -> None:
    """Every token is measured from the step that made it."""
    assert added_latencies_s(arrivals, STEPS).tolist() == pytest.approx(expected)
