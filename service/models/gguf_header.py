"""What a GGUF file says before its tensors: metadata, and the tensors' names.

``gguf.GGUFReader`` makes an array object of every vocabulary entry: 2 s for 49,152 tokens, against 50 ms here, which a
user waits for. The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little endian.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.models.errors import ModelError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING = 8
_ARRAY = 9


@dataclass(frozen=True)
class GgufHeader:
    """``metadata``: numbers, booleans, strings and lists of these, by key."""

    metadata: dict[str, Any]
    tensor_names: frozenset[str]


def read_gguf_header(path: Path) -> GgufHeader:
    """Raises ModelError if ``path`` is no GGUF file, is cut short or is garbled."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Cursor(data).header()
    except (OSError, ValueError, KeyError, struct.error, RecursionError) as error:
        raise ModelError(f"{path} is not a readable GGUF file: {error}") from error


class _Cursor:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._offset = 0

    def header(self) -> GgufHeader:
        magic, version = self._take(4), self._scalar("I")
        if magic != _MAGIC or version not in _VERSIONS:
            raise ValueError(f"it begins with {magic!r}, version {version}")
        num_tensors, num_keys = self._scalar("Q"), self._scalar("Q")
        metadata = {self._string(): self._value(self._scalar("I")) for _ in range(num_keys)}
        return GgufHeader(metadata, frozenset(self._tensor_name() for _ in range(num_tensors)))

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        return self._scalar(_SCALARS[kind])

    def _array(self) -> list[Any]:
        kind, length = self._scalar("I"), self._scalar("Q")
        if kind == _STRING:
            return [self._string() for _ in range(length)]
        if kind == _ARRAY:
            return [self._array() for _ in range(length)]
        return list(self._scalars(f"<{length}{_SCALARS[kind]}"))

    def _tensor_name(self) -> str:
        name = self._string()
        num_dimensions = self._scalar("I")
        self._scalars(f"<{num_dimensions}QIQ")
        return name

    def _string(self) -> str:
        return self._take(self._scalar("Q")).decode()

    def _scalar(self, code: str) -> Any:
        return self._scalars("<" + code)[0]

    def _scalars(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(layout, self._data, self._offset)
        self._offset += struct.calcsize(layout)
        return values

    def _take(self, length: int) -> bytes:
        taken = self._data[self._offset : self._offset + length]
        if len(taken) != length:
            raise ValueError(f"it ends at byte {len(self._data)}, inside a string")
        self._offset += length
        return taken
