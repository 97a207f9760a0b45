"""The gateway's log, on standard error: each line names the call that it is about."""

import logging

from core.wire.log_lines import LogFormat, formatter_of
from core.wire.standard_error import StandardErrorHandler
from service.calls.call import current_call

_OURS = "service", "core"
_ACCESS = "service.access"


class CallFilter(logging.Filter):
    """Marks each record with the names of the call on whose behalf it is logged, unless it has them already."""

    def filter(self, record: logging.LogRecord) -> bool:
        if (call := current_call()) is not None:
            for name, value in call.names():
                if not hasattr(record, name):
                    setattr(record, name, value)
        return True


def configure_logging(level: str, log_format: LogFormat, access_log: bool = False) -> None:
    """Send our records of ``level`` and above to standard error, and other libraries' except what is for debugging.

    Calls that ended are logged if ``access_log`` says so, and for debugging.
    """
    handler = StandardErrorHandler()
    handler.setFormatter(formatter_of(log_format))
    handler.addFilter(CallFilter())
    logging.basicConfig(level="INFO" if level == "debug" else level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    for ours in _OURS:
        logging.getLogger(ours).setLevel(level.upper())
    logging.getLogger(_ACCESS).setLevel("INFO" if access_log or level == "debug" else "WARNING")
