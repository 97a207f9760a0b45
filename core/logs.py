"""Log lines of the same two forms as the gateway's, beside which they stand; and a way to log what strangers cause.

The forms stand in ``service.logs`` once more, since neither may import the other; a test compares their lines.
"""

import copy
import json
import logging
import time
from collections.abc import Mapping
from typing import Literal

from core.wire.standard_error import StandardErrorHandler

LogFormat = Literal["text", "json"]
_TEXT_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"
_NAMES = "request_id", "method", "model", "key_name", "trace_id"
"""Attributes of a record that say whom it is about: here the first alone, given as ``extra``."""


class JsonFormatter(logging.Formatter):
    """``time`` (UTC, RFC 3339), ``level``, ``logger``, ``message`` and, with an error, ``traceback``.

    About a request also its ``request_id``, and the ``fields`` of the record, if it has any.
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


def configure_logging(level: str, log_format: LogFormat = "text") -> None:
    """Send our records of ``level`` and above to standard error, and other libraries' except what is for debugging.

    Replaces what was configured before.
    """
    handler = StandardErrorHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level="INFO" if level == "debug" else level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    logging.getLogger("core").setLevel(level.upper())


def logging_flags() -> list[str]:
    """Of a child process that is to log as this one does, in the words of our commands."""
    formatters = [handler.formatter for handler in logging.getLogger().handlers]
    log_format = "json" if any(isinstance(formatter, JsonFormatter) for formatter in formatters) else "text"
    level = logging.getLevelName(logging.getLogger("core").getEffectiveLevel()).lower()
    return [f"--log-level={level}", f"--log-format={log_format}"]


class ThrottledLog:
    """Counts every event, logs one a second at most: a flood of bad messages must not become a flood of lines."""

    def __init__(self, logger: logging.Logger, interval_s: float = 1.0) -> None:
        self.count = 0
        self._logger = logger
        self._interval_s = interval_s
        self._logged_count = 0
        self._quiet_until = 0.0

    def warning(self, message: str, *args: object, request_id: str | None = None) -> None:
        """``request_id``: whom it is about."""
        self.count += 1
        if time.monotonic() < self._quiet_until:
            return
        unlogged = self.count - self._logged_count - 1
        suffix = f" ({unlogged} more like it before)" if unlogged else ""
        extra = None if request_id is None else {"request_id": request_id}
        self._logger.warning(message + suffix, *args, extra=extra)
        self._logged_count = self.count
        self._quiet_until = time.monotonic() + self._interval_s


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
