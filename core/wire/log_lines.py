"""The two forms of a log line: gateway and core stand side by side on standard error, and are read as one."""

import copy
import json
import logging
import time
from collections.abc import Mapping
from typing import Literal

LogFormat = Literal["text", "json"]
_TEXT_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"
_NAMES = "request_id", "method", "model", "key_name", "trace_id"
"""Attributes of a record that say whom it is about; a core gives the first alone, as ``extra``."""


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
    """``2026-01-31T12:00:00.000Z INFO core.process: message``, and ``request_id=…`` of a request."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__(_TEXT_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        plain = copy.copy(record)
        suffix = f" request_id={record.request_id}" if hasattr(record, "request_id") else ""
        plain.msg, plain.args = "%s", (_message_of(record) + suffix,)
        return _encodable(super().format(plain))


def formatter_of(log_format: LogFormat) -> logging.Formatter:
    """For lines of that form."""
    return JsonFormatter() if log_format == "json" else TextFormatter()


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
