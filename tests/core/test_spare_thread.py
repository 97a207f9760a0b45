"""core.spare_thread: where the system has no thread to give, a future says so and nothing is done later."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from core.spare_thread import submit
from core.structured_output.masks import MaskThreads


class Starved(ThreadPoolExecutor):
    """Its threads cannot be started, while ``is_starved``."""

    is_starved = True

    def _adjust_thread_count(self) -> None:
        if self.is_starved:
            raise RuntimeError("can't start new thread")
        super()._adjust_thread_count()


def test_no_thread() -> None:
    """The call fails, and is not made when there are threads again; later ones are."""
    made: list[str] = []
    with Starved(1) as threads:
        failed = submit(threads, lambda: made.append("first"))
        with pytest.raises(RuntimeError, match="no thread for it: can't start new thread"):
            failed.result(0)
        threads.is_starved = False
        submit(threads, lambda: made.append("second"), stack_bytes=1 << 20).result(60)
    assert made == ["second"]


def test_masks_without_threads() -> None:
    """They are made all the same, by whoever waits for them."""
    masks = MaskThreads(Starved(1))
    made: list[int] = []
    for number in range(3):
        masks.add(lambda number=number: made.append(number))  # type: ignore[misc]
    masks.wait()
    assert made == [0, 1, 2]
    masks.close()
