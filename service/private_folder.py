"""The folder of this process's sockets: nobody else may enter it, and nothing of it is left at the end."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.config import MAX_SOCKET_PATH_BYTES

_PREFIX = "sluicegate-"
_LONGEST_REST = f"/{_PREFIX}12345678/handshake"


class FolderError(Exception):
    """There is no place for the folder; the text says what was tried."""


@contextmanager
def private_folder() -> Iterator[Path]:
    """In TMPDIR, or in /tmp if the paths of sockets would be too long there. Raises FolderError."""
    try:
        folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=_short_place(), ignore_cleanup_errors=True)
    except OSError as error:
        raise FolderError(f"no folder can be made for the sockets: {error}") from error
    with folder as path:
        yield Path(path)


def _short_place() -> str:
    max_bytes = MAX_SOCKET_PATH_BYTES - len(_LONGEST_REST)
    place = tempfile.gettempdir()
    return place if len(os.fsencode(place)) <= max_bytes else "/tmp"
