"""Files that are read again when they have changed, while the process runs.

Changed is what ``stat`` says of the file that the path leads to: written in place, replaced, or reached by a symbolic
link that now leads elsewhere, as the secrets of Kubernetes are renewed. A version that cannot be used, such as one that
is half written or of which only one of two files is there, is logged once; the last good one stays until the next.
"""

import logging
import os
import stat
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

_Content = TypeVar("_Content")
_MAX_BYTES = 4 * 2**20


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
            self._content = self._read()
        except SecurityFileError as error:
            logger.error("%s; what was read before stays in force", error)
        except Exception:
            # Of what asks for the content none could do anything about it.
            logger.exception("cannot use %s; what was read before stays in force", ", ".join(map(str, self._paths)))
        else:
            logger.info("read anew: %s", ", ".join(map(str, self._paths)))


def read_file(path: Path, *, is_secret: bool = False) -> bytes:
    """Raises SecurityFileError. Warns of a secret that every user of the machine can read too."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
            is_open_to_all = os.fstat(file.fileno()).st_mode & stat.S_IROTH
    except OSError as error:
        raise SecurityFileError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise SecurityFileError(f"{path} must have at most {_MAX_BYTES} bytes")
    if is_secret and is_open_to_all:
        logger.warning("everyone on this machine can read %s: chmod o-r", path)
    return content


def _version_of(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    if not stat.S_ISREG(found.st_mode):
        return ()  # A pipe gives what it holds once, and to open it again may take for ever.
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
