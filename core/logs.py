"""One line a record, the same in every process; and a way to log what strangers cause."""

import logging
import sys
import time

LINE = "%(asctime)s %(levelname)s %(name)s %(message)s"


def configure_logging(level: str) -> None:
    """Send records of ``level`` and above to standard error. Replaces what was configured before."""
    logging.basicConfig(level=level.upper(), format=LINE, stream=sys.stderr, force=True)


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
