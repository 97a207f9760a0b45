"""The keys that callers show, from a file: ``NAME:KEY`` or ``NAME:sha256:HEX`` in each line, # begins a comment.

Only digests are kept: the file's text is forgotten, and nothing that is logged or sent can hold a key. Keys are meant
to be random and long, so one round of SHA-256 is enough to keep them from who can read the file's hashes.
"""

import hashlib
import hmac
import re
from pathlib import Path

from service.security.watched_files import SecurityFileError, WatchedFiles, read_file

MIN_KEY_CHARS = 16
MAX_KEY_CHARS = 512
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_KEY = re.compile(rf"[!-~]{{{MIN_KEY_CHARS},{MAX_KEY_CHARS}}}")
_DIGEST = re.compile(r"sha256:(?P<hex>[0-9a-fA-F]{64})")

_Digests = list[tuple[bytes, str]]


class ApiKeys:
    """Read when made, and again whenever somebody calls after the file has changed."""

    def __init__(self, path: Path) -> None:
        """Raises SecurityFileError, which names the file and the line."""
        self._file = WatchedFiles([path], lambda: _read(path))

    @property
    def names(self) -> set[str]:
        """Whose keys they are. One may have several, old and new."""
        return {name for _, name in self._file.content()}

    def name_of(self, key: bytes) -> str | None:
        """Whose ``key`` it is; None: nobody's. Takes as long whichever it is."""
        shown, found = hashlib.sha256(key).digest(), None
        for digest, name in self._file.content():
            found = name if hmac.compare_digest(digest, shown) else found
        return found


def _read(path: Path) -> _Digests:
    try:
        lines = read_file(path, is_secret=True).decode().splitlines()
    except UnicodeDecodeError as error:
        raise SecurityFileError(f"{path} is not UTF-8") from error
    names: dict[bytes, str] = {}
    for number, line in enumerate(lines, start=1):
        if not (text := line.strip()) or text.startswith("#"):
            continue
        digest, name = _parsed(f"{path}, line {number}", text)
        if names.setdefault(digest, name) != name:
            raise SecurityFileError(f"{path}, line {number}: {name} has the key of {names[digest]}")
    if not names:
        raise SecurityFileError(f"{path} holds no key")
    return [*names.items()]


def _parsed(where: str, text: str) -> tuple[bytes, str]:
    """Nothing of the text goes into an error: it may be a key, out of place."""
    name, colon, key = text.partition(":")
    if not colon or not _NAME.fullmatch(name):
        form = "NAME:KEY or NAME:sha256:HEX, NAME of at most 64 letters, digits and ._@-"
        raise SecurityFileError(f"{where} must be {form}")
    if key.startswith("sha256:"):
        if (match := _DIGEST.fullmatch(key)) is None:
            raise SecurityFileError(f"{where}: sha256 must be 64 hexadecimal digits, got {len(key) - len('sha256:')}")
        return bytes.fromhex(match["hex"]), name
    if not _KEY.fullmatch(key):
        bounds = f"{MIN_KEY_CHARS} to {MAX_KEY_CHARS} printable ASCII characters without spaces"
        raise SecurityFileError(f"{where}: the key of {name} must have {bounds}")
    return hashlib.sha256(key.encode()).digest(), name
