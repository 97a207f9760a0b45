"""Work that goes on when whoever asked for it leaves."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class ToTheEnd:
    """Keeps what runs from being collected, as asyncio does not. Owned by the event loop."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of ``work``, for a caller that still waits for it."""
        return await asyncio.shield(self.begin(work))

    def begin(self, work: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        """For a caller that does not wait."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen: the caller was told, if still there
