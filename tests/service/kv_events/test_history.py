"""The last batches of a core."""

from service.kv_events.history import History


def test_from_a_number_on() -> None:
    """Those from the number on, in order; None for what was never there or has given way."""
    history = History(max_batches=3)
    assert history.since(0) is None
    for number in range(5, 10):
        history.add(number, bytes([number]))
    assert history.since(6) is None
    assert history.since(7) == [(7, b"\7"), (8, b"\10"), (9, b"\11")]
    assert history.since(9) == [(9, b"\11")]
    history.clear()
    assert history.since(9) is None


def test_it_is_bounded_in_bytes() -> None:
    """The oldest give way to a large one, which may be too large itself."""
    history = History(max_bytes=10)
    for number, size in enumerate((4, 4, 4)):
        history.add(number, bytes(size))
    assert [number for number, _ in history.since(1) or ()] == [1, 2]
    history.add(3, bytes(11))
    assert history.since(3) is None
    history.add(4, bytes(1))
    assert [number for number, _ in history.since(4) or ()] == [4]
