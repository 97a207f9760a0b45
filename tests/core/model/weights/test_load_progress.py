"""A long load is told to the log."""

import logging
import queue

import pytest

from core.model.weights.load_progress import logged_layers, logged_wait


def test_every_layer_comes_and_long_pauses_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With a clock that passes three seconds a layer, each one; a quick load says nothing."""
    caplog.set_level(logging.INFO)
    assert list(logged_layers(5)) == [0, 1, 2, 3, 4]
    assert not caplog.messages
    ticks = iter(range(0, 100, 3))
    assert list(logged_layers(3, lambda: next(ticks))) == [0, 1, 2]
    assert "loading weights: layer 1 of 3" in caplog.messages


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.heard: queue.Queue[str] = queue.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.put(record.getMessage())


def test_a_wait_is_told_of_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    """For work that does not say how far it is."""
    caplog.set_level(logging.INFO)
    listener, logger = _Listener(), logging.getLogger("core.model.weights.load_progress")
    logger.addHandler(listener)
    with logged_wait("reading", interval_s=0.001):
        assert listener.heard.get(timeout=30).startswith("reading, for ")
    logger.removeHandler(listener)
