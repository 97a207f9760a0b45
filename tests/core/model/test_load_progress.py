"""A long load is told to the log."""

import logging

import pytest

from core.model.load_progress import logged_layers


def test_every_layer_comes_and_long_pauses_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With a clock that passes three seconds a layer, each one; a quick load says nothing."""
    caplog.set_level(logging.INFO)
    assert list(logged_layers(5)) == [0, 1, 2, 3, 4]
    assert not caplog.messages
    ticks = iter(range(0, 100, 3))
    assert list(logged_layers(3, lambda: next(ticks))) == [0, 1, 2]
    assert "loading weights: layer 1 of 3" in caplog.messages
