"""The two forms of a log line."""

import json
import logging
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.wire.log_lines import JsonFormatter, TextFormatter

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.binary() | st.builds(object),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner),
    max_leaves=5,
)


def a_record(message: str, *args: object) -> logging.LogRecord:
    record = logging.LogRecord("service.server", logging.INFO, __file__, 1, message, args, None)
    record.created, record.msecs = 1_767_225_600.25, 250
    return record


def test_text() -> None:
    """A line of text begins with the time in UTC, the level and the logger."""
    assert TextFormatter().format(a_record("ready grpc=%s", "x")) == (
        "2026-01-01T00:00:00.250Z INFO service.server: ready grpc=x"
    )


def test_json() -> None:
    """A line of JSON holds the same under names of their own, whatever the message holds."""
    line = JsonFormatter().format(a_record('two\nlines "quoted" %s', "é"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-01-01T00:00:00.250Z",
        "level": "INFO",
        "logger": "service.server",
        "message": 'two\nlines "quoted" é',
    }


def test_json_traceback() -> None:
    """An error's traceback stays on the line."""
    record = a_record("failed")
    try:
        raise KeyError("lost")
    except KeyError:
        record.exc_info = sys.exc_info()
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert "KeyError: 'lost'" in json.loads(line)["traceback"]


@given(message=st.text(), arguments=st.lists(ANYTHING, max_size=2), fields=st.dictionaries(st.text(), ANYTHING))
def test_always_one_line_of_json(message: str, arguments: list[Any], fields: dict[str, Any]) -> None:
    """Whatever is logged, and however wrongly, becomes one line that any parser of JSON reads."""
    record = a_record(message, *arguments)
    record.fields, record.request_id = fields, message
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert "\r" not in line
    entry = json.loads(line.encode(), parse_constant=pytest.fail)
    assert isinstance(entry, dict)
    TextFormatter().format(record).encode()
