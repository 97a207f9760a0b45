"""Threads of their own for long texts: to tokenize megabytes takes seconds, for which nobody else should wait.

A text that is being tokenized cannot be stopped; one that still waits for a thread is forgotten when its call is
cancelled.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from service.errors import QueueFull

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

NUM_THREADS = 4


class TextThreads:
    """At most ``max_calls`` calls run or wait at once. Owned by the event loop."""

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls
        self._num_calls = 0
        self._pool = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="text")

    def __repr__(self) -> str:
        return f"TextThreads({self._num_calls} of at most {self._max_calls} calls)"

    async def run(
        self, work: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Result:
        """What ``work`` returns or raises, off the event loop. Raises QueueFull when too many calls are in already."""
        if self._num_calls >= self._max_calls:
            raise QueueFull(f"{self._num_calls} long texts are being read already, at most {self._max_calls} may be")
        self._num_calls += 1
        try:
            return await asyncio.wrap_future(self._pool.submit(work, *args, **kwargs))
        finally:
            self._num_calls -= 1
