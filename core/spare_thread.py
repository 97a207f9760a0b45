"""Work for threads beside the busy loop, which must not end because the system has no thread to give."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


def submit(threads: ThreadPoolExecutor, call: Callable[[], _T], stack_bytes: int = 0) -> "Future[_T]":
    """As ``threads.submit``, but where no thread can be started the Future says so; ``call`` is then never made.

    A thread that is started for it gets ``stack_bytes``, unless they are 0.
    """
    is_given_up = threading.Event()

    def call_unless_given_up() -> _T:
        # An executor that could not start a thread keeps what it was given, and does it when it can.
        if is_given_up.is_set():
            raise RuntimeError("given up")
        return call()

    before = threading.stack_size(stack_bytes) if stack_bytes else None
    try:
        return threads.submit(call_unless_given_up)
    except RuntimeError as error:
        is_given_up.set()
        failed: Future[_T] = Future()
        failed.set_exception(RuntimeError(f"no thread for it: {error}"))
        return failed
    finally:
        if before is not None:
            threading.stack_size(before)
