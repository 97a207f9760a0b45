"""Masks are computed beside the busy loop."""

import threading

from core.structured_output.masks import MaskThreads


def test_a_mask_is_there_after_a_short_wait() -> None:
    """Of any that were asked for."""
    masks = MaskThreads()
    futures = [masks.submit(lambda number=number: number) for number in range(100)]  # type: ignore[misc]
    masks.wait()
    assert [future.result() for future in futures] == [*range(100)]
    masks.close()


def test_nobody_waits_for_one_that_takes_long() -> None:
    """The others are there, and it comes when it comes; without any there is nothing to wait for."""
    masks, goes_on = MaskThreads(), threading.Event()
    slow, quick = masks.submit(goes_on.wait), masks.submit(lambda: 1)
    masks.wait()
    assert quick.result() == 1
    assert not slow.done()
    goes_on.set()
    assert slow.result()
    masks.wait()
    masks.wait()
    masks.close()
