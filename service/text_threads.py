"""Threads of their own for long texts: to tokenize megabytes takes seconds, for which nobody else should wait.

A text that is being tokenized cannot be stopped, and counts until its thread is done with it; one that still waits for
a thread is forgotten when its call is cancelled.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from service.errors import QueueFull

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

NUM_THREADS = 4
MAX_BYTES = 64 * 2**20
"""Of all requests that are read or wait for it, as they came over the wire."""


class TextThreads:
    """At most ``max_calls`` calls run or wait at once. Owned by the event loop."""

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls
        self._num_calls = 0
        self._num_bytes = 0
        self._pool = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="text")

    def __repr__(self) -> str:
        return f"TextThreads({self._num_calls} of at most {self._max_calls} calls, {self._num_bytes} bytes)"

    async def run(
        self, num_bytes: int, work: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Result:
        """What ``work`` returns or raises, off the event loop; its request has ``num_bytes``.

        Raises QueueFull when too many calls or bytes are in already.
        """
        if self._num_calls >= self._max_calls:
            raise QueueFull(f"{self._num_calls} long texts are being read already, at most {self._max_calls} may be")
        if self._num_bytes + num_bytes > MAX_BYTES:
            bound = f"at most {MAX_BYTES} may be"
            raise QueueFull(f"{self._num_bytes} bytes of texts are being read already, {bound}")
        loop = asyncio.get_running_loop()
        future = self._pool.submit(work, *args, **kwargs)
        self._count(1, num_bytes)
        released = partial(self._count, -1, -num_bytes)
        future.add_done_callback(lambda _: loop.is_closed() or loop.call_soon_threadsafe(released))
        return await asyncio.wrap_future(future)

    def _count(self, num_calls: int, num_bytes: int) -> None:
        self._num_calls += num_calls
        self._num_bytes += num_bytes
