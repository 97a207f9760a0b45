"""How late the event loop is."""

import asyncio
import time

from service.loop_lag import LoopLag


def test_the_worst_of_two_windows() -> None:
    """A hiccup is told until it lies a whole window back."""
    lag = LoopLag()
    assert lag.worst_s == 0
    lag.note(100.5, 100.0)
    lag.note(101.25, 101.0)
    assert lag.worst_s == 0.5
    lag.note(115.5, 115.25)
    assert lag.worst_s == 0.5
    lag.note(130.75, 130.5)
    assert lag.worst_s == 0.25


async def test_what_blocks_the_loop_is_seen() -> None:
    """At least as long as it lasted beyond the next waking; when stopped, nothing is seen any more."""
    lag = LoopLag()
    lag.start()
    time.sleep(0.3)  # noqa: ASYNC251 - that is what it is to see
    async with asyncio.timeout(30):
        while lag.worst_s < 0.19:
            await asyncio.to_thread(int)
    lag.stop()
    lag.stop()
