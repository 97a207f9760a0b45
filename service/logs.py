"""Log lines on standard error, as text or as one JSON object per line; each names the call that it is about."""

import copy
import json
import logging
import time
from collections.abc import Mapping
from typing import Literal

from core.wire.standard_error import StandardErrorHandler
from service.calls.call import current_call

LogFormat = Literal["text", "json"]
_OURS = "service", "core"
_ACCESS = "service.access"
_TEXT_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"
_NAMES = "request_id", "method", "model", "key_name", "trace_id"
"""Attributes of a record that say whom it is about."""


class CallFilter(logging.Filter):
    """Marks each record with the names of the call on whose behalf it is logged, unless it has them already."""

    def filter(self, record: logging.LogRecord) -> bool:
        if (call := current_call()) is not None:
            for name, value in call.names():
                if not hasattr(record, name):
                    setattr(record, name, value)
        return True


class JsonFormatter(logging.Formatter):
    """``time`` (UTC, RFC 3339), ``level``, ``logger``, ``message`` and, with an error, ``traceback``.

    About a call also its names, ``request_id`` and those below, and the ``fields`` of the record, if it has any.
    """

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON, whatever the message holds."""
        entry: dict[str, object] = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": _message_of(record),
        }
        entry |= {name: getattr(record, name) for name in _NAMES if hasattr(record, name)}
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return _encodable(_to_json(entry))


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.000Z INFO service.server: message``, and ``request_id=…`` of a request."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__(_TEXT_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        plain = copy.copy(record)
        suffix = f" request_id={record.request_id}" if hasattr(record, "request_id") else ""
        plain.msg, plain.args = "%s", (_message_of(record) + suffix,)
        return _encodable(super().format(plain))


def configure_logging(level: str, log_format: LogFormat, access_log: bool = False) -> None:
    """Send our records of ``level`` and above to standard error, and other libraries' except what is for debugging.

    Calls that ended are logged if ``access_log`` says so, and for debugging.
    """
    handler = StandardErrorHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(CallFilter())
    logging.basicConfig(level="INFO" if level == "debug" else level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    for ours in _OURS:
        logging.getLogger(ours).setLevel(level.upper())
    logging.getLogger(_ACCESS).setLevel("INFO" if access_log or level == "debug" else "WARNING")


def _message_of(record: logging.LogRecord) -> str:
    """Even if its arguments do not fit: a line that cannot be made would become many, on no one's terms."""
    try:
        return record.getMessage()
    except Exception as error:
        return f"{record.msg!r:.1000} cannot be filled in: {type(error).__name__}"


def _to_json(entry: Mapping[str, object]) -> str:
    try:
        return json.dumps(entry, ensure_ascii=False, allow_nan=False, default=str)
    except Exception:  # Of what stands in fields; a message is text.
        return json.dumps({name: str(value) for name, value in entry.items()}, ensure_ascii=False)


def _encodable(line: str) -> str:
    """Half a surrogate pair cannot be written; escaped it can, and JSON has the same escape."""
    return line.encode("utf-8", "backslashreplace").decode()
