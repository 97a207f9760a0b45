"""Standard error, written without ever waiting for whoever reads it: a log that nobody reads must not stop a server.

line ──▶ there is room ──▶ written at once
     └─▶ there is none ──▶ kept, and written by a thread ──▶ too much is kept: dropped, counted, and told later
"""

import logging
import os
import select
import sys
import threading
from collections import deque
from contextlib import suppress

logger = logging.getLogger(__name__)

_STDERR = 2
_ATOM_BYTES = 4096
"""What a pipe takes as a whole, and has room for when it says that it has any (PIPE_BUF)."""
_MAX_KEPT_BYTES = 1 << 20
_CLOSE_TIMEOUT_S = 1.0


class PatientFile:
    """A file descriptor that others read. ``max_kept_bytes``: what waits for them. May be used by any thread."""

    def __init__(self, descriptor: int, max_kept_bytes: int = _MAX_KEPT_BYTES) -> None:
        self._descriptor = descriptor
        self._max_kept_bytes = max_kept_bytes
        self._kept: deque[bytes] = deque()
        self._num_kept_bytes = 0
        self._num_dropped = 0
        self._lock = threading.Lock()
        self._has_written_all = threading.Event()
        self._has_written_all.set()
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def write(self, data: bytes) -> None:
        """``data``, whole lines, or nothing of it. What cannot be written at all is nobody's."""
        with self._lock:
            if not self._kept:
                data = self._write_at_once(data)
            if data:
                self._keep(data)

    def flush(self, timeout_s: float) -> None:
        """Return when all that was kept is written, or after the time-out."""
        self._has_written_all.wait(timeout_s)

    def _write_at_once(self, data: bytes) -> bytes:
        """What there was no room for."""
        with suppress(OSError):
            while data and self._poll.poll(0):
                data = self._write_piece(data)
            return data
        return b""

    def _write_piece(self, data: bytes) -> bytes:
        """For which there is room. The rest."""
        return data[os.write(self._descriptor, data[:_ATOM_BYTES]) :]

    def _keep(self, data: bytes) -> None:
        if self._num_kept_bytes + len(data) > self._max_kept_bytes and self._kept:
            self._num_dropped += data.count(b"\n")
            return
        self._kept.append(data)
        self._num_kept_bytes += len(data)
        if self._has_written_all.is_set():
            self._has_written_all.clear()
            threading.Thread(target=self._write_kept, name="log", daemon=True).start()

    def _write_kept(self) -> None:
        """A thread, until nothing is kept."""
        while data := self._oldest():
            with suppress(OSError):
                while data:
                    self._poll.poll()
                    data = self._write_piece(data)
            self._let_go_of_oldest()

    def _oldest(self) -> bytes:
        """Empty: there is nothing, and no thread any more."""
        with self._lock:
            if self._kept:
                return self._kept[0]
            num_dropped, self._num_dropped = self._num_dropped, 0
            self._has_written_all.set()
        if num_dropped:
            logger.warning("%d lines of the log were dropped: standard error was not read", num_dropped)
        return b""

    def _let_go_of_oldest(self) -> None:
        with self._lock:
            self._num_kept_bytes -= len(self._kept.popleft())


STANDARD_ERROR = PatientFile(_STDERR)


class StandardErrorHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Of records. At its end it waits a moment for who reads."""

    def emit(self, record: logging.LogRecord) -> None:
        if not _is_descriptor(self.stream):
            super().emit(record)
            return
        try:
            STANDARD_ERROR.write((self.format(record) + self.terminator).encode("utf-8", "backslashreplace"))
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Also what ``logging.shutdown`` calls."""
        STANDARD_ERROR.flush(_CLOSE_TIMEOUT_S)
        super().close()


def _is_descriptor(stream: object) -> bool:
    """Whether ``stream`` is standard error itself, and nothing in its place."""
    return stream is sys.__stderr__
