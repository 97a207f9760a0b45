"""Files that others have made, read as far as that can end."""

import os
import stat
from pathlib import Path

from core.model.weights.weight_source import ModelLoadError


def read_regular_file(path: Path, max_bytes: int) -> bytes:
    """All of ``path``. Raises ModelLoadError if it cannot be read, is larger, or is no file.

    A pipe would never be opened, and a device such as /dev/zero never end: whoever waited would hold up all the others.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ModelLoadError(f"{path}: cannot be read: it is not a regular file")
            if status.st_size > max_bytes:
                raise ModelLoadError(f"{path}: must have at most {max_bytes} bytes, got {status.st_size}")
            return file.read(max_bytes)
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot be read: {error.strerror or error}") from error


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
