"""When counts are published, and which belong together."""

from core.data_parallel.load_board import CHANGED_INTERVAL_S, SAME_STEP_S, UNCHANGED_INTERVAL_S, LoadBoard


def test_nothing_new() -> None:
    """Without a change the counts are due every five seconds."""
    board = LoadBoard(2, now=10.0)
    assert board.is_due_at() == 10.0 + UNCHANGED_INTERVAL_S
    assert board.publish(11.0) == [[0, 0], [0, 0]]
    assert board.is_due_at() == 11.0 + UNCHANGED_INTERVAL_S


def test_change() -> None:
    """A change is due 100 ms after the last publication."""
    board = LoadBoard(2, now=10.0)
    board.take(1, 2, 3, step=(0, 1), now=10.01)
    assert board.is_due_at() == 10.0 + CHANGED_INTERVAL_S
    assert board.publish(10.1) == [[0, 0], [2, 3]]
    assert board.is_due_at() == 10.1 + UNCHANGED_INTERVAL_S


def test_engines_have_time_to_report_the_same_step() -> None:
    """A change after a long silence waits 50 ms for the other engines' counts of that step."""
    board = LoadBoard(2, now=0.0)
    board.take(0, 1, 0, step=(0, 7), now=20.0)
    assert board.is_due_at() == 20.0 + SAME_STEP_S


def test_counts_of_one_step_belong_together() -> None:
    """If the next step's counts come first, those of the complete step are published, and the new ones after them."""
    board = LoadBoard(2, now=0.0)
    board.take(0, 1, 0, step=(0, 1), now=1.0)
    board.take(1, 2, 0, step=(0, 1), now=1.0)
    board.take(0, 0, 1, step=(0, 2), now=1.01)
    assert board.is_due_at() <= 1.01
    assert board.publish(1.02) == [[1, 0], [2, 0]]
    board.take(1, 0, 2, step=(0, 2), now=1.03)
    assert board.publish(1.2) == [[0, 1], [0, 2]]
    assert board.is_due_at() == 1.2 + UNCHANGED_INTERVAL_S
