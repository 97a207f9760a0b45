"""Log lines on standard error, as text or as one JSON object per line."""

import json
import logging
import time
from typing import Literal

LogFormat = Literal["text", "json"]
_OURS = "service", "core"
_TEXT_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """``time`` (UTC, RFC 3339), ``level``, ``logger``, ``message`` and, with an error, ``traceback``."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON, whatever the message holds."""
        entry = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.000Z INFO service.server: message``."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__(_TEXT_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S")


def configure_logging(level: str, log_format: LogFormat) -> None:
    """Send our records of ``level`` and above to standard error, and other libraries' except what is for debugging."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level="INFO" if level == "debug" else level.upper(), handlers=[handler], force=True)
    for ours in _OURS:
        logging.getLogger(ours).setLevel(level.upper())
