"""The two forms of a log line."""

import json
import logging
import sys

import pytest

from service.logs import JsonFormatter, TextFormatter, configure_logging


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


def test_debugging_is_ours_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """At the level debug other libraries log as at info: theirs would hide ours."""
    root, ours = logging.getLogger(), logging.getLogger("service")
    before = root.handlers[:], root.level, ours.level
    try:
        configure_logging("debug", "text")
        for name in ("service.server", "asyncio"):
            logging.getLogger(name).debug("small")
            logging.getLogger(name).info("large")
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])
        logging.getLogger("core").setLevel(logging.NOTSET)
    said = [line.split(maxsplit=1)[1] for line in capsys.readouterr().err.splitlines()]
    assert said == ["DEBUG service.server: small", "INFO service.server: large", "INFO asyncio: large"]
