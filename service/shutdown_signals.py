"""How a process of the gateway is asked to end."""

import asyncio
import logging
import signal
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger(__name__)


class ShutdownSignals:
    """SIGTERM, SIGINT and, when the terminal closes, SIGHUP: ``first`` asks for a drain, ``second`` for haste."""

    def __init__(self) -> None:
        self.first, self.second = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._receive, number)

    def _receive(self, number: signal.Signals) -> None:
        logger.info("%s received: %s", number.name, "stopping now" if self.first.is_set() else "draining")
        (self.second if self.first.is_set() else self.first).set()


async def done_before(interruption: asyncio.Event, work: Coroutine[Any, Any, Any]) -> bool:
    """Whether ``work`` was done before ``interruption`` was set, which cancels it. Raises what ``work`` raises."""
    task, interrupted = asyncio.ensure_future(work), asyncio.ensure_future(interruption.wait())
    try:
        await asyncio.wait({task, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return task.done()
    finally:
        interrupted.cancel()
        task.cancel()
        await asyncio.wait({task, interrupted})
