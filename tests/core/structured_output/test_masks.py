"""Masks are computed beside the busy loop."""

import threading

from core.structured_output.masks import MaskThreads


def test_masks_are_there_after_a_short_wait() -> None:
    """All that were asked for."""
    masks, done = MaskThreads(), []
    for number in range(100):
        masks.add(lambda number=number: done.append(number))  # type: ignore[misc]
    assert not done
    masks.wait()
    assert sorted(done) == [*range(100)]
    masks.close()


def test_nobody_waits_for_one_that_takes_long() -> None:
    """The others are there, and it comes when it comes; without any there is nothing to wait for."""
    masks, goes_on, done = MaskThreads(), threading.Event(), threading.Semaphore(0)
    masks.add(lambda: goes_on.wait() and done.release())
    masks.add(done.release)
    masks.wait()
    assert done.acquire(timeout=30)
    assert not done.acquire(blocking=False)
    goes_on.set()
    assert done.acquire(timeout=30)
    masks.wait()
    masks.wait()
    masks.close()


def test_closed_with_masks_to_come() -> None:
    """They never will."""
    masks, done = MaskThreads(), []
    masks.add(lambda: done.append(1))
    masks.close()
    assert not done
