"""Log lines of the same two forms as the gateway's, beside which they stand; and a way to log what strangers cause.

The forms stand in ``service.logs`` once more, since neither may import the other; a test compares their lines.
"""

import json
import logging
import sys
import time
from typing import Literal

LogFormat = Literal["text", "json"]


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.000Z INFO core.process: message``."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", datefmt="%Y-%m-%dT%H:%M:%S")


class JsonFormatter(logging.Formatter):
    """``time`` (UTC, RFC 3339), ``level``, ``logger``, ``message`` and, with an error, ``traceback``."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def configure_logging(level: str, log_format: LogFormat = "text") -> None:
    """Send our records of ``level`` and above to standard error, and other libraries' except what is for debugging.

    Replaces what was configured before.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level="INFO" if level == "debug" else level.upper(), handlers=[handler], force=True)
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

    def warning(self, message: str, *args: object) -> None:
        self.count += 1
        if time.monotonic() < self._quiet_until:
            return
        unlogged = self.count - self._logged_count - 1
        suffix = f" ({unlogged} more like it before)" if unlogged else ""
        self._logger.warning(message + suffix, *args)
        self._logged_count = self.count
        self._quiet_until = time.monotonic() + self._interval_s
