"""Waking the one who waits: at once, or what can wait no oftener than told. Timers here are far off or due at once."""

import asyncio

from service.wakeup import Wakeup

FAR_S = 1000.0


async def is_waiting(task: asyncio.Task[None]) -> bool:
    """Whether it still is when everything that is ready has run."""
    for _ in range(5):
        await asyncio.sleep(0)
    return not task.done()


async def test_what_came_before_the_wait_counts_once() -> None:
    """However often it was set: the wait returns at once, and the next one waits."""
    wakeup = Wakeup()
    wakeup.set(is_urgent=False)
    wakeup.set(is_urgent=False)
    await wakeup.wait()
    waiting = asyncio.ensure_future(wakeup.wait())
    assert await is_waiting(waiting)
    wakeup.set(is_urgent=False)
    await waiting


async def test_what_can_wait_waits_for_the_interval() -> None:
    """The first may come at once; the next only after the interval."""
    wakeup = Wakeup(FAR_S)
    wakeup.set(is_urgent=False)
    await wakeup.wait()
    waiting = asyncio.ensure_future(wakeup.wait())
    wakeup.set(is_urgent=False)
    assert await is_waiting(waiting)
    wakeup.set(is_urgent=True)
    await waiting


async def test_what_is_urgent_does_not_wait() -> None:
    """Neither if it comes during the wait nor if it was there before; and then the interval begins anew."""
    wakeup = Wakeup(FAR_S)
    for _ in range(2):
        wakeup.set(is_urgent=True)
        await wakeup.wait()
    waiting = asyncio.ensure_future(wakeup.wait())
    wakeup.set(is_urgent=False)
    assert await is_waiting(waiting)
    waiting.cancel()


async def test_the_interval_ends() -> None:
    """What waited comes when it is due."""
    wakeup = Wakeup(0.001)
    for _ in range(3):
        wakeup.set(is_urgent=False)
        await asyncio.wait_for(wakeup.wait(), 10)


async def test_a_wait_that_was_cancelled_loses_nothing() -> None:
    """What had come is there for the next wait."""
    wakeup = Wakeup(FAR_S)
    wakeup.set(is_urgent=False)
    await wakeup.wait()
    waiting = asyncio.ensure_future(wakeup.wait())
    wakeup.set(is_urgent=False)
    assert await is_waiting(waiting)
    waiting.cancel()
    assert not await is_waiting(waiting)
    wakeup.set(is_urgent=True)
    await wakeup.wait()
