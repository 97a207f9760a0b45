"""The folder of this process's sockets: nobody else may enter it, and nothing of it is left at the end.

A process that is killed leaves its folder; the next one to start removes it. Whether the owner lives is told by the
lock on a file in the folder, which the system takes back from whoever dies: process ids come again.
"""

import fcntl
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from service.config import MAX_SOCKET_PATH_BYTES

logger = logging.getLogger(__name__)

_PREFIX = "sluicegate-"
_LONGEST_REST = f"/{_PREFIX}12345678/coordinator_to_front_ends"
_LOCK = "lock"


class FolderError(Exception):
    """There is no place for the folder; the text says what was tried."""


@contextmanager
def private_folder() -> Iterator[Path]:
    """In TMPDIR, or in /tmp if the paths of sockets would be too long there. Raises FolderError."""
    try:
        place = _short_place()
        _sweep(place)
        folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place, ignore_cleanup_errors=True)
    except OSError as error:
        raise FolderError(f"no folder can be made for the sockets: {error}") from error
    with folder as path, _owned(Path(path)):
        yield Path(path)


def _short_place() -> str:
    max_bytes = MAX_SOCKET_PATH_BYTES - len(_LONGEST_REST)
    place = tempfile.gettempdir()
    return place if len(os.fsencode(place)) <= max_bytes else "/tmp"


@contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """The lock is held before it has its name: who sweeps never finds one that is free but not forsaken."""
    with (folder / f"{_LOCK}.new").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / f"{_LOCK}.new").rename(folder / _LOCK)
        yield


def _sweep(place: str) -> None:
    """Remove the folders that killed processes of this user have left."""
    with suppress(OSError):
        for folder in Path(place).glob(f"{_PREFIX}????????"):
            with suppress(OSError):
                _remove_if_forsaken(folder)


def _remove_if_forsaken(folder: Path) -> None:
    """Raises OSError if it is not: BlockingIOError while its owner lives."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
        logger.info("removed %s, which a killed server has left", folder)
    finally:
        os.close(lock)
