"""Files that change while they are watched."""

import os
from pathlib import Path

import pytest

from service.security.watched_files import SecurityFileError, WatchedFiles, read_file


def test_what_changes_is_read_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In place, by a rename, or gone and back; the same object as long as nothing changes."""
    path = tmp_path / "f"
    path.write_bytes(b"one")
    files = WatchedFiles([path], lambda: read_file(path))
    assert files.content() is files.content()
    path.write_bytes(b"three")
    assert files.content() == b"three"
    (tmp_path / "next").write_bytes(b"later")
    (tmp_path / "next").rename(path)
    assert files.content() == b"later"
    path.unlink()
    assert files.content() == files.content() == b"later"
    assert caplog.text.count("No such file or directory; what was read before stays in force") == 1
    path.write_bytes(b"back")
    assert files.content() == b"back"


def test_whatever_goes_wrong_the_old_one_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Even what nobody has thought of: who asks could do nothing about it."""
    path = tmp_path / "f"
    path.write_text("1")
    files = WatchedFiles([path], lambda: 1 // int(path.read_text()))
    path.write_text("0 ")
    assert files.content() == 1
    assert f"cannot use {path}; what was read before stays in force" in caplog.text


def test_a_pipe_is_read_once() -> None:
    """It holds nothing more, and to open it again would take for ever."""
    read_end, write_end = os.pipe()
    os.write(write_end, b"secret")
    os.close(write_end)
    path = Path(f"/proc/self/fd/{read_end}")
    files = WatchedFiles([path], lambda: read_file(path))
    assert files.content() == files.content() == b"secret"
    os.close(read_end)


def test_too_large(tmp_path: Path) -> None:
    """Something else than keys and certificates is not read to its end."""
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(SecurityFileError, match="must have at most 4194304 bytes"):
        read_file(path)


def test_a_file_that_becomes_a_pipe(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for what may never be written."""
    path = tmp_path / "f"
    path.write_bytes(b"old")
    files = WatchedFiles([path], lambda: read_file(path))
    path.unlink()
    os.mkfifo(path)
    assert files.content() == files.content() == b"old"
    assert caplog.messages == [f"{path} is no file any more; what was read before stays in force"]


def test_pipe_into_which_nobody_writes(tmp_path: Path) -> None:
    """It is not waited for without end."""
    os.mkfifo(tmp_path / "f")
    with pytest.raises(SecurityFileError, match=r"nothing came for 0\.01 s"):
        read_file(tmp_path / "f", pipe_timeout_s=0.01)
