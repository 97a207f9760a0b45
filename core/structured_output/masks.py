"""Masks are computed on threads beside the busy loop, so that one that takes long holds up nobody but its request."""

import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from core.spare_thread import submit

NUM_MASK_THREADS = 2
GRAMMAR_STACK_BYTES = 16 << 20
"""Of every thread that grammars run on: eight times what a trial has."""
MASK_WAIT_S = 0.02
"""How long a step waits for masks. Most take 0.05 ms, the worst that the library's limits allow 0.1 s."""


class MaskThreads:
    """Owned by the busy loop. There are no threads before the first mask."""

    def __init__(self, threads: ThreadPoolExecutor | None = None) -> None:
        self._threads = threads or ThreadPoolExecutor(NUM_MASK_THREADS, "mask")
        self._due: deque[Callable[[], None]] = deque()
        self._working: set[Future[None]] = set()

    def add(self, compute: Callable[[], None]) -> None:
        """Have ``compute`` called, which must not raise, on a thread, from the next ``wait`` on."""
        self._due.append(compute)

    def wait(self) -> None:
        """For all that were added, but not for long. The library lets go of the interpreter while it computes."""
        for _ in range(min(len(self._due), NUM_MASK_THREADS)):
            self._working.add(submit(self._threads, self._work, GRAMMAR_STACK_BYTES))
        if self._working:
            self._working = wait(self._working, MASK_WAIT_S).not_done
        if self._due and not self._working:  # There was no thread to be had.
            self._work()

    def close(self) -> None:
        self._due.clear()
        self._threads.shutdown(cancel_futures=True)

    def _work(self) -> None:
        # All that is due, and not one each: to hand something to a thread takes longer than most masks.
        with contextlib.suppress(IndexError):
            while True:
                self._due.popleft()()
