"""Time stamps of cores."""

import time

import pytest

from service.tracing.core_clock import CoreClock


@pytest.mark.parametrize("ahead_s", [0.0, 0.5, -1000.0, 1000.0])
def test_now(ahead_s: float) -> None:
    """What a core says of now is now, whether it has our clock or another; its message may take a part of a second."""
    here = time.monotonic()
    clock = CoreClock(here - ahead_s, here)
    off_s = clock.time_ns(here - ahead_s) / 1e9 - time.time()
    assert abs(off_s) < 0.6 + (time.monotonic() - here)


def test_one_machine() -> None:
    """On one machine a message that takes long moves nothing."""
    here = time.monotonic()
    slow, fast = CoreClock(here - 0.9, here), CoreClock(here, here)
    assert slow.time_ns(here) == pytest.approx(fast.time_ns(here), abs=5e7)
