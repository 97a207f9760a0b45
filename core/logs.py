"""The core's log, on standard error beside the gateway's; and a way to log what strangers cause."""

import logging
import time

from core.wire.log_lines import JsonFormatter, LogFormat, formatter_of
from core.wire.standard_error import StandardErrorHandler


def configure_logging(level: str, log_format: LogFormat = "text") -> None:
    """Send our records of ``level`` and above to standard error, and other libraries' except what is for debugging.

    Replaces what was configured before.
    """
    handler = StandardErrorHandler()
    handler.setFormatter(formatter_of(log_format))
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
