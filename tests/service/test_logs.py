"""The gateway's log: whom a line names, and what is logged at all."""

import json
import logging
from collections.abc import Iterator

import pytest

from core.wire.log_lines import JsonFormatter, TextFormatter
from service.calls.call import Call, running
from service.logs import CallFilter, configure_logging


def a_record(message: str, *args: object) -> logging.LogRecord:
    record = logging.LogRecord("service.server", logging.INFO, __file__, 1, message, args, None)
    record.created, record.msecs = 1_767_225_600.25, 250
    return record


def test_names_of_the_call() -> None:
    """On behalf of a call a line has its names; a record that has one of its own keeps that; others have none."""
    call = Call("/S/M", model="m")
    call.request_id, call.key_name = "r", "team"
    first, second, outside = a_record("one"), a_record("two"), a_record("three")
    second.request_id = "other"
    with running(call):
        assert CallFilter().filter(first)
        assert CallFilter().filter(second)
    assert CallFilter().filter(outside)
    names = {"request_id": "r", "method": "/S/M", "model": "m", "key_name": "team"}
    assert json.loads(JsonFormatter().format(first)).items() >= names.items()
    assert TextFormatter().format(first).endswith(" one request_id=r")
    assert TextFormatter().format(second).endswith(" two request_id=other")
    assert TextFormatter().format(outside).endswith(" three")


@pytest.fixture
def restored() -> Iterator[None]:
    """Logging is as it was, afterwards."""
    loggers = [logging.getLogger(name) for name in ("", "service", "core", "service.access")]
    before = [(logger, logger.level) for logger in loggers]
    handlers = loggers[0].handlers[:]
    yield
    logging.captureWarnings(False)
    loggers[0].handlers[:] = handlers
    for logger, level in before:
        logger.setLevel(level)


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize(
    ("level", "access_log", "is_said"),
    [("info", False, False), ("info", True, True), ("warning", True, True), ("debug", False, True)],
)
def test_access_log(level: str, access_log: bool, is_said: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Calls are logged if asked for, whatever else is, and for debugging."""
    configure_logging(level, "json", access_log)
    logging.getLogger("service.access").info("a call")
    assert ("a call" in capsys.readouterr().err) is is_said


@pytest.mark.usefixtures("restored")
def test_debugging_is_ours_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """At the level debug other libraries log as at info: theirs would hide ours."""
    configure_logging("debug", "text")
    for name in ("service.server", "asyncio"):
        logging.getLogger(name).debug("small")
        logging.getLogger(name).info("large")
    said = [line.split(maxsplit=1)[1] for line in capsys.readouterr().err.splitlines()]
    assert said == ["DEBUG service.server: small", "INFO service.server: large", "INFO asyncio: large"]
