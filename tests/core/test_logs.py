"""Logging what strangers cause."""

import logging

import pytest

from core.logs import ThrottledLog

logger = logging.getLogger(__name__)


def test_a_flood_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """However many events come at once, one line is logged, and all are counted."""
    log = ThrottledLog(logger, interval_s=600)
    for i in range(1000):
        log.warning("bad message %d", i)
    assert [record.getMessage() for record in caplog.records] == ["bad message 0"]
    assert log.count == 1000


def test_what_was_left_out_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The next line says how many events came before it unlogged."""
    log = ThrottledLog(logger, interval_s=0)
    log.warning("first")
    log.count += 41
    log.warning("second")
    assert caplog.records[-1].getMessage() == "second (41 more like it before)"
