"""Waking the one task that waits for something to come, at once or, of what can wait, no oftener than told."""

import asyncio


class Wakeup:
    """Set by whoever has brought something, awaited by the one task that takes it. Owned by the event loop.

    ``min_interval_s``: what is not urgent waits until the last waking was so long ago.
    """

    __slots__ = ("_due_at", "_is_set", "_is_urgent", "_min_interval_s", "_waiter", "_waits_for_urgent")

    def __init__(self, min_interval_s: float = 0.0) -> None:
        self._min_interval_s = min_interval_s
        self._due_at = 0.0
        self._is_set = False
        self._is_urgent = False
        self._waits_for_urgent = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self, is_urgent: bool) -> None:
        """Something has come."""
        self._is_set = True
        self._is_urgent |= is_urgent
        if is_urgent or not self._waits_for_urgent:
            self._wake()

    async def wait(self) -> None:
        """Return when something has come since the last return, and is urgent or due."""
        while not self._is_set:
            await self._sleep()
        if self._min_interval_s:
            await self._until_due()
        self._is_set = self._is_urgent = False

    async def _until_due(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._is_urgent and loop.time() < self._due_at:
            timer = loop.call_at(self._due_at, self._wake)
            self._waits_for_urgent = True
            try:
                await self._sleep()
            finally:
                self._waits_for_urgent = False
                timer.cancel()
        self._due_at = loop.time() + self._min_interval_s

    async def _sleep(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
