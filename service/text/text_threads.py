"""Threads of their own for long texts: to tokenize megabytes takes seconds, for which nobody else should wait.

A text that is being tokenized cannot be stopped, and counts until its thread is done with it; one that still waits for
a thread is forgotten when its call is cancelled.
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from service.admission.budget import Budget
from service.errors import QueueFull

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

NUM_THREADS = 4
MAX_BYTES = 64 * 2**20
"""Of all requests that are read or wait for it, as they came over the wire."""

_SWITCH_INTERVAL_S = 0.0005
"""How long a thread that computes lets others wait, the event loop among them. Python's own 5 ms, of each of four
threads and for each of the few steps of a health check, made tenths of a second."""


class TextThreads:
    """At most ``max_calls`` calls run or wait at once. Owned by the event loop."""

    def __init__(self, max_calls: int) -> None:
        self._calls = Budget(max_calls)
        self._bytes = Budget(MAX_BYTES)
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL_S))
        self._pool = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="text")

    def __repr__(self) -> str:
        return f"TextThreads({self._calls.held} of at most {self._calls.limit} calls, {self._bytes.held} bytes)"

    async def run(
        self, num_bytes: int, work: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Result:
        """What ``work`` returns or raises, off the event loop; its request has ``num_bytes``.

        Raises QueueFull when too many calls or bytes are in already.
        """
        self._check_room(num_bytes)
        loop = asyncio.get_running_loop()
        future = self._pool.submit(work, *args, **kwargs)
        self._calls.take(1)
        self._bytes.take(num_bytes)
        released = partial(self._give_back, num_bytes)
        future.add_done_callback(lambda _: loop.is_closed() or loop.call_soon_threadsafe(released))
        return await asyncio.wrap_future(future)

    def _check_room(self, num_bytes: int) -> None:
        calls, total = self._calls, self._bytes
        if not calls.has_room(1):
            text = f"{calls.held} long texts are being read already, at most {calls.limit} may be"
            raise QueueFull(text, retry_after_s=calls.refuse(1))
        if not total.has_room(num_bytes):
            text = f"{total.held} bytes of texts are being read already, at most {total.limit} may be"
            raise QueueFull(text, retry_after_s=total.refuse(num_bytes))

    def _give_back(self, num_bytes: int) -> None:
        self._calls.give_back(1)
        self._bytes.give_back(num_bytes)
