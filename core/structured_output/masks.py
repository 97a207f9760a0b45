"""Masks are computed on threads beside the busy loop, so that one that takes long holds up nobody but its request."""

import threading
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
        self._pending: set[Future[object]] = set()

    def submit(self, compute: "Callable[[], _T]") -> "Future[_T]":
        """The library lets go of the interpreter while it computes."""
        future = submit_with_stack(self._threads, compute)
        self._pending.add(future)  # type: ignore[arg-type]
        return future

    def wait(self) -> None:
        """For all of them, but not for long."""
        if self._pending:
            self._pending = wait(self._pending, MASK_WAIT_S).not_done

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)


def submit_with_stack(threads: ThreadPoolExecutor, call: "Callable[[], _T]") -> "Future[_T]":
    """As ``submit``. The thread, should this be what starts it, gets the stack that grammars may need."""
    before = threading.stack_size(_STACK_BYTES)
    try:
        return threads.submit(call)
    finally:
        threading.stack_size(before)
