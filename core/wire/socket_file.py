"""The file of a unix socket: never taken away from who listens on it, nor left behind."""

import errno
import os
import socket
import stat
from contextlib import suppress


def check_free(path: str) -> None:
    """Raises OSError, for people, unless nothing is at ``path`` but maybe the socket of a process that is gone.

    Libraries that bind a socket remove what is there first: a socket that another process listens on, or any file.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, "a file that is no socket is there")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        if probe.connect_ex(path) in (0, errno.EAGAIN):
            raise OSError(errno.EADDRINUSE, "another process does")


class SocketFile:
    """The file at ``path``, there since this process has bound its socket."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._identity = _identity(path)

    def remove(self) -> None:
        """Remove it, unless it is gone, or another's by now."""
        if self._identity is not None and _identity(self._path) == self._identity:
            with suppress(OSError):
                os.unlink(self._path)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
