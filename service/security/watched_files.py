"""Files that are read again when they have changed, while the process runs.

Changed is what ``stat`` says of the file that the path leads to: written in place, replaced, or reached by a symbolic
link that now leads elsewhere, as the secrets of Kubernetes are renewed. A version that cannot be used, such as one that
is half written or of which only one of two files is there, is logged once; the last good one stays until the next.
"""

import errno
import logging
import os
import select
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

_Content = TypeVar("_Content")
_MAX_BYTES = 4 * 2**20
_PIPE_TIMEOUT_S = 10.0
"""For what stands behind a pipe, such as ``<(pass show keys)``, which gives what it holds once."""
_PIPE = (0,)
"""The version of whatever is no file: it is read at the start only."""


class SecurityFileError(Exception):
    """A file that cannot be used; the text names it and says why, and holds nothing of what is in it."""


class WatchedFiles(Generic[_Content]):
    """What ``read`` makes of the files at ``paths``. May be asked from any thread."""

    def __init__(self, paths: Iterable[Path], read: Callable[[], _Content]) -> None:
        """``read`` raises SecurityFileError for what cannot be used, and so does this."""
        self._paths = [*paths]
        self._read = read
        self._lock = threading.Lock()
        self._seen = [_version_of(path) for path in self._paths]
        self._content = read()

    def content(self) -> _Content:
        """The last good version: the same object until the files change."""
        # The version is taken before the files are read: a change in between shows the next time.
        with self._lock:
            found = [_version_of(path) for path in self._paths]
            if found != self._seen:
                self._seen = found
                self._renew()
            return self._content

    def _renew(self) -> None:
        try:
            self._check_are_files()
            self._content = self._read()
        except SecurityFileError as error:
            logger.error("%s; what was read before stays in force", error)
        except Exception:
            # Of what asks for the content none could do anything about it.
            logger.exception("cannot use %s; what was read before stays in force", ", ".join(map(str, self._paths)))
        else:
            logger.info("read anew: %s", ", ".join(map(str, self._paths)))

    def _check_are_files(self) -> None:
        for path, version in zip(self._paths, self._seen, strict=True):
            if version == _PIPE:
                raise SecurityFileError(f"{path} is no file any more")


def read_file(path: Path, *, is_secret: bool = False, pipe_timeout_s: float = _PIPE_TIMEOUT_S) -> bytes:
    """Raises SecurityFileError. Warns of a secret that every user of the machine can read too."""
    try:
        # Not to wait in ``open`` for who writes to a pipe.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
            content = b"".join(_pieces(file.fileno(), pipe_timeout_s))
            is_open_to_all = os.fstat(file.fileno()).st_mode & stat.S_IROTH
    except OSError as error:
        raise SecurityFileError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise SecurityFileError(f"{path} must have at most {_MAX_BYTES} bytes")
    if is_secret and is_open_to_all:
        logger.warning("everyone on this machine can read %s: chmod o-r", path)
    return content


def _pieces(descriptor: int, timeout_s: float) -> Iterator[bytes]:
    """What it holds, as far as anybody wants to know. Raises TimeoutError if that does not come."""
    poll, end, size = select.poll(), time.monotonic() + timeout_s, 0
    poll.register(descriptor, select.POLLIN)
    while size <= _MAX_BYTES:
        if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
            raise TimeoutError(errno.ETIMEDOUT, f"nothing came for {timeout_s:g} s")
        piece = os.read(descriptor, _MAX_BYTES + 1 - size)
        if not piece:
            return
        size += len(piece)
        yield piece


def _version_of(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    if not stat.S_ISREG(found.st_mode):
        return _PIPE
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
