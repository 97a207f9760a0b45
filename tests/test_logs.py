"""The gateway's log and the core's stand side by side on standard error."""

import logging
import sys

import pytest

import core.logs
import service.logs


def a_record() -> logging.LogRecord:
    try:
        raise KeyError("lost")
    except KeyError:
        error = sys.exc_info()
    record = logging.LogRecord("core.process", logging.ERROR, __file__, 1, 'two\nlines "quoted" %s', ("é",), error)
    record.request_id, record.fields = "r\ud800", {"seconds": 1.5}
    return record


@pytest.mark.parametrize("form", ["TextFormatter", "JsonFormatter"])
def test_both_write_the_same_lines(form: str) -> None:
    """Text and JSON, time in UTC: one record is one and the same line, whichever process logs it."""
    record = a_record()
    lines = {getattr(module, form)().format(record) for module in (core.logs, service.logs)}
    assert len(lines) == 1
