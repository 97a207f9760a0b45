"""How a process of the gateway is asked to end."""

import asyncio
import os
import signal

import pytest

from service.shutdown_signals import ShutdownSignals, done_before


async def test_first_and_second() -> None:
    """The first signal asks for a drain, any further one for haste."""
    signals = ShutdownSignals()
    os.kill(os.getpid(), signal.SIGHUP)
    await signals.first.wait()
    assert not signals.second.is_set()
    os.kill(os.getpid(), signal.SIGTERM)
    await signals.second.wait()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().remove_signal_handler(number)


async def test_done_before() -> None:
    """Work that is done comes before the interruption, which cancels it otherwise; what it raises is raised."""
    interruption, cancelled = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def fail() -> None:
        raise ValueError("no")

    assert await done_before(interruption, asyncio.sleep(0))
    with pytest.raises(ValueError, match="no"):
        await done_before(interruption, fail())
    asyncio.get_running_loop().call_soon(interruption.set)
    assert not await done_before(interruption, endless())
    assert cancelled.is_set()
