"""What a core writes to standard error: passed on as it comes, and its last line kept, which says why it ended.

core ──stderr pipe──▶ event loop ──whole lines──▶ our own standard error
"""

import asyncio
import json
import os
import re

from core.wire.standard_error import STANDARD_ERROR

_MAX_BYTES = 1 << 16
"""Read at once, and of a line that does not end."""
_MAX_ERROR_CHARS = 500
_LOG_LINE = re.compile(r"Z ERROR \S+: (?:exiting: )?(?P<message>.+)|Error: (?P<usage>.+)", re.DOTALL)


class CoreLog:
    """Give ``write_end`` to the process and then ``hand_over``. Runs on the event loop until the process has ended."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._unfinished = b""
        self._last_line = ""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_end, self._read)

    @property
    def error(self) -> str:
        """What the last line says, if it says what was wrong; else empty. In the core's words, on one line."""
        found = _LOG_LINE.search(_plain(self._last_line))
        text = (found["message"] or found["usage"]) if found else ""
        return " ".join(text.split())[:_MAX_ERROR_CHARS]

    def hand_over(self) -> None:
        """The process has the other end now, or will never have it."""
        os.close(self.write_end)

    def close(self) -> None:
        """Read what is still there and stop. May be called twice."""
        while self._read_end >= 0 and self._read():
            pass
        self._end()

    def _read(self) -> bool:
        """Whether there was something."""
        try:
            data = os.read(self._read_end, _MAX_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._take(data)
        else:
            self._end()
        return bool(data)

    def _take(self, data: bytes) -> None:
        """Lines of several processes must not run into each other: only whole ones are passed on."""
        lines, newline, self._unfinished = (self._unfinished + data).rpartition(b"\n")
        if len(self._unfinished) > _MAX_BYTES:
            lines, newline, self._unfinished = lines + newline + self._unfinished, b"", b""
        self._pass_on(lines + newline)

    def _end(self) -> None:
        if self._read_end >= 0:
            self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1
            self._pass_on(self._unfinished)

    def _pass_on(self, text: bytes) -> None:
        if last := text.rstrip().rpartition(b"\n")[2]:
            self._last_line = last.decode(errors="replace")
        if text:
            STANDARD_ERROR.write(text)


def _plain(line: str) -> str:
    """``line``, or what it would be if it were not logged as JSON."""
    try:
        entry = json.loads(line)
        return f"Z {entry['level']} {entry['logger']}: {entry['message']}"
    except (ValueError, TypeError, KeyError):
        return line
