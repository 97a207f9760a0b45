"""A file that somebody made can be wrong, but not hold up who reads it."""

import os
from pathlib import Path

import pytest

from core.model.weights.regular_file import read_regular_file
from core.model.weights.weight_source import ModelLoadError


def test_a_file_is_read_through_links_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    assert read_regular_file(tmp_path / "link", 3) == b"abc"


def test_pipes_devices_and_folders_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "zero", "folder"):
        with pytest.raises(ModelLoadError, match=f"/{name}: cannot be read: .*(not a regular file|Is a directory)"):
            read_regular_file(tmp_path / name, 1000)


def test_what_cannot_be_found_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in ("nowhere", "loop"):
        with pytest.raises(ModelLoadError, match=f"/{name}: cannot be read: "):
            read_regular_file(tmp_path / name, 1000)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """Such as one that claims terabytes of zeros."""
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ModelLoadError, match=f"/huge: must have at most 1000 bytes, got {1 << 40}"):
        read_regular_file(tmp_path / "huge", 1000)
