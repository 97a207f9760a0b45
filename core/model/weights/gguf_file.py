"""GGUF, version 2 and 3: metadata and tensors, mapped.

The ``gguf`` package reads the header too, but makes an array view of each vocabulary entry: 2.4 s for a vocabulary
of 49,152. Here they are stepped over.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from core.model.weights.settings import Settings
from core.model.weights.weight_source import ModelLoadError

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_DEFAULT_ALIGNMENT = 32
_MAX_DIMENSIONS = 4


@dataclass(frozen=True)
class GgufTensor:
    """``shape`` outermost first, as torch has it; ``data`` uint8 [rows, bytes of a row], still in the mapped file."""

    quantization: gguf.GGMLQuantizationType
    shape: tuple[int, ...]
    data: NDArray[np.uint8]


@dataclass(frozen=True)
class GgufFile:
    """Metadata without arrays of strings, and tensors under the file's own names."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    @classmethod
    def open(cls, path: Path) -> "GgufFile":
        """Raises ModelLoadError for a file that is not GGUF, is cut short or holds an unknown tensor type."""
        try:
            data = np.memmap(path, mode="r")
        except (OSError, ValueError) as exc:
            raise ModelLoadError(f"{path}: cannot be read: {exc}") from exc
        cursor = _Cursor(path, data)
        try:
            tensor_count, metadata = _read_metadata(cursor)
        except RecursionError as exc:
            raise ModelLoadError(f"{path}: arrays nested too deep at byte {cursor.offset}") from exc
        alignment = Settings(f"{path}: metadata ", metadata).count("general.alignment", _DEFAULT_ALIGNMENT)
        return cls(path, metadata, _read_tensors(cursor, tensor_count, alignment))


class _Cursor:
    def __init__(self, path: Path, data: NDArray[np.uint8]) -> None:
        self.path = path
        self.data = data
        self.offset = 0
        self._view = data.data

    def take(self, size: int) -> memoryview:
        start, self.offset = self.offset, self.offset + size
        if self.offset > len(self._view):
            raise ModelLoadError(f"{self.path}: the header ends early, at byte {len(self._view)}: truncated file?")
        return self._view[start : self.offset]

    def number(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def string(self) -> str:
        data = bytes(self.take(self.number("Q")))
        try:
            return data.decode()
        except UnicodeDecodeError as exc:
            raise ModelLoadError(f"{self.path}: the text before byte {self.offset} is not UTF-8") from exc

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array()
        return self.number(self.scalar_code(kind))

    def array(self) -> list[Any] | None:
        """None for an array of strings: the vocabulary, which the model does not need."""
        kind, length = self.number("I"), self.number("Q")
        if kind == _STRING:
            for _ in range(length):
                self.take(self.number("Q"))
            return None
        if kind == _ARRAY:
            return [self.array() for _ in range(length)]
        layout = "<" + self.scalar_code(kind)
        return [number for (number,) in struct.iter_unpack(layout, self.take(length * struct.calcsize(layout)))]

    def scalar_code(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise ModelLoadError(f"{self.path}: unknown metadata type {kind} at byte {self.offset}")
        return _SCALARS[kind]


def _read_metadata(cursor: _Cursor) -> tuple[int, dict[str, Any]]:
    if bytes(cursor.take(4)) != b"GGUF":
        raise ModelLoadError(f"{cursor.path}: not a GGUF file")
    version = cursor.number("I")
    if version not in (2, 3):
        raise ModelLoadError(f"{cursor.path}: GGUF version must be 2 or 3, got {version}")
    tensor_count, metadata_count = cursor.number("Q"), cursor.number("Q")
    metadata = {}
    for _ in range(metadata_count):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.number("I"))
    return tensor_count, metadata


def _read_tensors(cursor: _Cursor, count: int, alignment: int) -> dict[str, GgufTensor]:
    infos = [_read_tensor_info(cursor) for _ in range(count)]
    start = -(-cursor.offset // alignment) * alignment
    return {name: _map_tensor(cursor, name, kind, shape, start + offset) for name, kind, shape, offset in infos}


def _read_tensor_info(cursor: _Cursor) -> tuple[str, int, tuple[int, ...], int]:
    name = cursor.string()
    num_dimensions = cursor.number("I")
    if num_dimensions > _MAX_DIMENSIONS:
        raise ModelLoadError(f"{cursor.path}: tensor {name} has {num_dimensions} dimensions, at most 4 are allowed")
    innermost_first = [cursor.number("Q") for _ in range(num_dimensions)]
    return name, cursor.number("I"), tuple(reversed(innermost_first)), cursor.number("Q")


def _map_tensor(cursor: _Cursor, name: str, kind: int, shape: tuple[int, ...], offset: int) -> GgufTensor:
    try:
        quantization = gguf.GGMLQuantizationType(kind)
        *rows, row_bytes = gguf.quant_shape_to_byte_shape(shape, quantization)
    except ValueError as exc:
        raise ModelLoadError(f"{cursor.path}: tensor {name}: {exc}") from exc
    num_rows = math.prod(rows)
    end = offset + num_rows * row_bytes
    if end > len(cursor.data):
        needs = f"{end} bytes, the file has {len(cursor.data)}"
        raise ModelLoadError(f"{cursor.path}: tensor {name} needs the file to have {needs}: truncated file?")
    return GgufTensor(quantization, shape, cursor.data[offset:end].reshape(num_rows, row_bytes))
