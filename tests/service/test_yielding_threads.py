"""Threads that give way."""

import os
import threading

import pytest

from service.yielding_threads import yielding_threads


def policy_of_new_thread() -> int:
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(os.sched_getscheduler(0)))
    thread.start()
    thread.join()
    return seen[0]


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux only")
def test_threads_of_the_block_give_way_and_no_others() -> None:
    """Started inside: batch. This thread, and what it starts later: as before."""
    before = os.sched_getscheduler(0)
    with yielding_threads():
        inside = policy_of_new_thread()
    assert inside == (os.SCHED_BATCH if before == os.SCHED_OTHER else before)
    assert (os.sched_getscheduler(0), policy_of_new_thread()) == (before, before)
