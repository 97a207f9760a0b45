"""Masks are computed on threads beside the busy loop, so that one that takes long holds up nobody but its request."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

_T = TypeVar("_T")
NUM_MASK_THREADS = 2
_STACK_BYTES = 16 << 20
"""Of every thread that grammars run on: eight times what a trial has."""
MASK_WAIT_S = 0.02
"""How long a step waits for masks. Most take 0.05 ms, the worst that the library's limits allow 0.1 s."""


class MaskThreads:
    """Owned by the busy loop. There are no threads before the first mask."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(NUM_MASK_THREADS, "mask")
        self._due: deque[Callable[[], None]] = deque()
        self._working: set[Future[None]] = set()

    def add(self, compute: Callable[[], None]) -> None:
        """Have ``compute`` called, which must not raise, on a thread, from the next ``wait`` on."""
        self._due.append(compute)

    def wait(self) -> None:
        """For all that were added, but not for long. The library lets go of the interpreter while it computes."""
        for _ in range(min(len(self._due), NUM_MASK_THREADS)):
            self._working.add(submit_with_stack(self._threads, self._work))
        if self._working:
            self._working = wait(self._working, MASK_WAIT_S).not_done

    def close(self) -> None:
        self._due.clear()
        self._threads.shutdown(cancel_futures=True)

    def _work(self) -> None:
        # All that is due, and not one each: to hand something to a thread takes longer than most masks.
        with contextlib.suppress(IndexError):
            while True:
                self._due.popleft()()


def submit_with_stack(threads: ThreadPoolExecutor, call: "Callable[[], _T]") -> "Future[_T]":
    """As ``submit``. The thread, should this be what starts it, gets the stack that grammars may need."""
    before = threading.stack_size(_STACK_BYTES)
    try:
        return threads.submit(call)
    finally:
        threading.stack_size(before)
