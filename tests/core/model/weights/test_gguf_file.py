"""Broken GGUF files: one sentence that names the file and the place, and never a hang."""

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from core.model.weights.gguf_file import GgufFile
from core.model.weights.weight_source import ModelLoadError
from tests.core.model.tiny_model import TINY, TinyModel


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    metadata = {"some.numbers": [1, 2, 3], "some.flag": True, "some.text": "héllo", "some.real": 0.5}
    TinyModel(TINY).write_gguf(path, metadata=metadata)
    return path


def test_metadata_and_tensors_are_those_the_gguf_package_reads(path: Path) -> None:
    """Scalars, arrays of numbers, text; the vocabulary is stepped over."""
    file, reader = GgufFile.open(path), gguf.GGUFReader(path)
    assert file.metadata["some.numbers"] == [1, 2, 3]
    assert file.metadata["some.flag"] is True
    assert file.metadata["some.text"] == "héllo"
    assert file.metadata["tokenizer.ggml.tokens"] is None
    for key, value in file.metadata.items():
        if value is not None:
            assert reader.fields[key].contents() == value
    assert list(file.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        ours = file.tensors[tensor.name]
        assert ours.shape == tuple(reversed(tensor.shape.tolist()))
        np.testing.assert_array_equal(ours.data.view(np.float32).ravel(), tensor.data.ravel())


def test_every_truncation_is_told(path: Path) -> None:
    """Cut at 60 places from the first byte to the last, the file is refused, with its name."""
    whole = path.read_bytes()
    for size in {*range(1, 40), *np.linspace(40, len(whole) - 1, 20).astype(int).tolist()}:
        path.write_bytes(whole[:size])
        with pytest.raises(ModelLoadError, match=r"tiny\.gguf: .*truncated file\?"):
            GgufFile.open(path)


def header(*parts: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + b"".join(parts)


def tensor(name: bytes, *shape: int, kind: int = 0) -> bytes:
    shape_bytes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return struct.pack("<Q", len(name)) + name + shape_bytes + struct.pack("<IQ", kind, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04 a zip file", "not a GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version must be 2 or 3, got 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "GGUF version must be 2 or 3"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sI", 1, b"k", 99), "unknown metadata type 99"),
        (header(tensor(b"w", 1 << 60, 1 << 60)), "tensor w needs the file to have"),
        (header(tensor(b"w", *[1] * 9)), "tensor w has 9 dimensions"),
        (header(tensor(b"w", 32, kind=77)), "tensor w: 77 is not a valid GGMLQuantizationType"),
        (header(tensor(b"w", 33, kind=2)), "tensor w: .*not a multiple of Q4_0 block size"),
    ],
)
def test_nonsense_is_told(tmp_path: Path, content: bytes, message: str) -> None:
    """What was found, where, and what was expected."""
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=rf"bad\.gguf: {message}"):
        GgufFile.open(path)


def test_an_empty_and_a_missing_file_are_told(tmp_path: Path) -> None:
    """Neither can be mapped."""
    (tmp_path / "empty.gguf").touch()
    for name in ("empty.gguf", "missing.gguf"):
        with pytest.raises(ModelLoadError, match=f"{name}: cannot be read"):
            GgufFile.open(tmp_path / name)
