"""The folder of the sockets."""

import stat
import subprocess
import sys
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
    rest = len("/sluicegate-12345678/coordinator_to_front_ends")
    long_place = place / ("x" * (MAX_SOCKET_PATH_BYTES - len(str(place)) - 1 - rest - num_spare))
    long_place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long_place))
    with private_folder() as folder:
        assert folder.parent == (long_place if num_spare == 0 else Path("/tmp"))
        assert len(str(folder / "coordinator_to_front_ends")) <= MAX_SOCKET_PATH_BYTES


def test_no_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be made is told, with its path."""
    monkeypatch.setattr(tempfile, "tempdir", str(place / "missing"))
    with (
        pytest.raises(FolderError, match=f"no folder can be made for the sockets: .*{place}/missing"),
        private_folder(),
    ):
        pass


def forsake(folder: Path) -> Path:
    """A folder as a killed process leaves it."""
    folder.mkdir(mode=0o700)
    (folder / "lock").touch()
    (folder / "requests").touch()
    return folder


def test_what_the_killed_leave_is_swept(place: Path) -> None:
    """The next to start removes it, and nothing of those who live, however many there are."""
    forsaken = forsake(place / "sluicegate-12345678")
    with private_folder() as first, private_folder() as second:
        assert not forsaken.exists()
        assert sorted(place.iterdir()) == sorted([first, second])
        assert second.is_dir()


def test_what_is_not_ours_stays(place: Path) -> None:
    """Neither folders without a lock, which may be just being made, nor other names, nor what a link leads to."""
    (place / "sluicegate-unlocked").mkdir()
    others = forsake(place / "other-12345678"), forsake(place / "sluicegate-123456789")
    (place / "sluicegate-abcdefgh").symlink_to(others[0])
    (place / "sluicegate-1234567a").touch()
    (place / "sluicegate-00000000").mkdir()
    before = sorted(place.rglob("*"))
    with private_folder():
        pass
    assert sorted(place.rglob("*")) == before


def test_nowhere_to_put_it() -> None:
    """No folder for temporary files can be written, as on a disk that is full: one line says so."""
    code = """
import resource
from service.private_folder import FolderError, private_folder
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    with private_folder():
        pass
except FolderError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("no folder can be made for the sockets: [Errno 2] No usable temporary directory")
