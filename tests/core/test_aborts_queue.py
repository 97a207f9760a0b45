"""What is to be aborted in the step that runs."""

from core.aborts_queue import AbortsQueue


def test_all_are_taken_at_once_and_in_their_order() -> None:
    """And no second time."""
    aborts = AbortsQueue()
    aborts.put(["a", "b"])
    aborts.put(["c"])
    assert aborts.take() == ["a", "b", "c"]
    assert aborts.empty()
    assert aborts.take() == []
