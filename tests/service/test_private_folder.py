"""The folder of the sockets."""

import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.config import MAX_SOCKET_PATH_BYTES
from service.private_folder import FolderError, private_folder


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short TMPDIR."""
    with tempfile.TemporaryDirectory(prefix="sg", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_folder_is_ours_alone_and_gone_at_the_end(place: Path) -> None:
    """In TMPDIR; what lies in it goes too."""
    with private_folder() as folder:
        assert folder.parent == place
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "requests").touch()
    assert [*place.iterdir()] == []


@pytest.mark.parametrize("num_spare", [0, -1])
def test_paths_of_sockets_fit(place: Path, monkeypatch: pytest.MonkeyPatch, num_spare: int) -> None:
    """A TMPDIR is used as long as the longest path fits; for one more byte, /tmp is."""
    rest = len("/sluicegate-12345678/handshake")
    long_place = place / ("x" * (MAX_SOCKET_PATH_BYTES - len(str(place)) - 1 - rest - num_spare))
    long_place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long_place))
    with private_folder() as folder:
        assert folder.parent == (long_place if num_spare == 0 else Path("/tmp"))
        assert len(str(folder / "handshake")) <= MAX_SOCKET_PATH_BYTES


def test_no_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be made is told, with its path."""
    monkeypatch.setattr(tempfile, "tempdir", str(place / "missing"))
    with (
        pytest.raises(FolderError, match=f"no folder can be made for the sockets: .*{place}/missing"),
        private_folder(),
    ):
        pass
