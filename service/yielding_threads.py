"""Threads that give way to the event loop.

gRPC's threads wake up for every message that leaves: one hears that it was sent and wakes the event loop to say so.
Scheduled as usual, each of them interrupts the loop as soon as there is something to hear: two switches per message, a
third of what a message costs. As what Linux calls batch threads they run when the loop pauses, and hear of all the
messages that it has sent meanwhile. They get the same share of the processors, and nobody's latency grows: what they
tell is that something is over.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def yielding_threads() -> Iterator[None]:
    """Threads that are started by this one in the block, and those that they start, do not interrupt others.

    Nothing changes where the system does not know or allow it, or was told how to schedule this process.
    """
    if not _is_scheduled_as_usual():
        yield
        return
    _schedule(os.SCHED_BATCH)
    try:
        yield
    finally:
        _schedule(os.SCHED_OTHER)


def _is_scheduled_as_usual() -> bool:
    return hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER


def _schedule(policy: int) -> None:
    """The calling thread."""
    with suppress(OSError):
        os.sched_setscheduler(0, policy, os.sched_param(0))
