"""The core's reader of GGUF files and the gateway's: what one takes, the other takes, and both read the same."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGUFValueType as Kind

from core.model.weights.gguf_file import GgufFile
from core.model.weights.weight_source import ModelLoadError
from service.models.errors import ModelError
from service.models.gguf_header import read_gguf_header

SCALARS: dict[Kind, Any] = {
    Kind.UINT8: 255,
    Kind.INT8: -128,
    Kind.UINT16: 65_535,
    Kind.INT16: -1,
    Kind.UINT32: 2**32 - 1,
    Kind.INT32: -(2**31),
    Kind.FLOAT32: 0.5,
    Kind.BOOL: True,
    Kind.UINT64: 2**64 - 1,
    Kind.INT64: -(2**63),
    Kind.FLOAT64: 0.1,
    Kind.STRING: "héllo ▁",
}
NESTED = [[[1, 2], [3]], [[4]]]
WORDS = ["a", "", "ü"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.gguf"


def write(path: Path, entries: list[tuple[str, Any, Kind, Kind | None]], tensors: tuple[str, ...] = ("w",)) -> None:
    """Key, value, type and, of an array, the type of its elements."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value, kind, element_kind in entries:
        writer.add_key_value(key, value, kind, element_kind)
    for name in tensors:
        writer.add_tensor(name, np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


Read = tuple[dict[str, Any], set[str]]
"""Metadata and the names of the tensors."""


def read_in_core(path: Path) -> Read:
    file = GgufFile.open(path)
    return file.metadata, set(file.tensors)


def read_in_gateway(path: Path) -> Read:
    header = read_gguf_header(path)
    return header.metadata, set(header.tensor_names)


both_readers = pytest.mark.parametrize("read", [read_in_core, read_in_gateway], ids=["core", "gateway"])


def without_text_in_arrays(value: Any) -> Any:
    """As the core keeps it: of a vocabulary it needs nothing."""
    if not isinstance(value, list):
        return value
    return None if value and isinstance(value[0], str) else [without_text_in_arrays(element) for element in value]


@both_readers
def test_every_type_is_read(path: Path, read: Callable[[Path], Read]) -> None:
    """Scalars, arrays of each, arrays of arrays; and the tensors behind all of them."""
    entries = [(f"one.{kind.name}", value, kind, None) for kind, value in SCALARS.items()]
    entries += [(f"many.{kind.name}", [value] * 3, Kind.ARRAY, kind) for kind, value in SCALARS.items()]
    entries += [("nested.numbers", NESTED, Kind.ARRAY, None), ("nested.words", [WORDS, WORDS], Kind.ARRAY, None)]
    entries.append(("last", 7, Kind.UINT32, None))
    write(path, entries, ("w", "blk.0.attn_q.weight"))
    metadata, tensor_names = read(path)
    assert tensor_names == {"w", "blk.0.attn_q.weight"}
    assert metadata.pop("general.architecture") == "llama"
    expected = {key: value for key, value, _, _ in entries}
    assert {k: without_text_in_arrays(v) for k, v in metadata.items()} == {
        k: without_text_in_arrays(v) for k, v in expected.items()
    }


def header(kind: int, value: bytes, key: bytes = b"k") -> bytes:
    """A file with one entry and no tensors."""
    return b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, len(key)) + key + struct.pack("<I", kind) + value


def array(kind: int, length: int, content: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, length) + content


def nested(depth: int) -> bytes:
    """An empty array of numbers, inside ``depth`` others of one element."""
    return array(9, 1) * depth + array(4, 0)


BROKEN = {
    "no GGUF": b"GGML" + bytes(40),
    "version 1": b"GGUF" + struct.pack("<IQQ", 1, 0, 0) + bytes(40),
    "unknown type": header(99, b""),
    "unknown type in an array": header(9, array(99, 1)),
    "unknown type in an empty array": header(9, array(99, 0)),
    "unknown type in a nested array": header(9, array(9, 1, array(99, 0))),
    "key that is not UTF-8": header(4, bytes(4), key=b"\xff"),
    "text that is not UTF-8": header(8, struct.pack("<Q", 1) + b"\xff"),
    "text beyond the end": header(8, struct.pack("<Q", 2**62)),
    "array beyond the end": header(9, array(4, 2**62)),
    "array of text beyond the end": header(9, array(8, 2**62)),
    "array of arrays beyond the end": header(9, array(9, 2**62)),
    "arrays without end": header(9, nested(100_000)),
}


@both_readers
@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_refused(path: Path, read: Callable[[Path], Read], content: bytes) -> None:
    """With the path, by an error of its own type."""
    path.write_bytes(content)
    with pytest.raises((ModelLoadError, ModelError), match=r"a\.gguf"):
        read(path)


@both_readers
def test_every_cut_in_the_header_is_refused(path: Path, read: Callable[[Path], Read]) -> None:
    """Whatever byte the file ends at."""
    write(path, [("nested", NESTED, Kind.ARRAY, None), ("words", WORDS, Kind.ARRAY, None)])
    whole = path.read_bytes()
    header_size = len(whole) - 32 * 4 - 32
    for size in range(header_size):
        path.write_bytes(whole[:size])
        with pytest.raises((ModelLoadError, ModelError), match=r"a\.gguf"):
            read(path)
