"""Files of unix sockets, live, stale and not sockets at all."""

import socket
from pathlib import Path

import pytest

from core.wire.socket_file import SocketFile, check_free


def listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(0)
    return listener


def test_free(tmp_path: Path) -> None:
    """Nothing at the path, or the socket of a process that is gone."""
    check_free(str(tmp_path / "nothing"))
    listening(tmp_path / "stale").close()
    check_free(str(tmp_path / "stale"))


@pytest.mark.parametrize("num_pending", [0, 1, 5])
def test_taken(tmp_path: Path, num_pending: int) -> None:
    """A socket that somebody listens on, be they too busy to accept anyone."""
    path = tmp_path / "s"
    pending = [socket.socket(socket.AF_UNIX) for _ in range(num_pending)]
    with listening(path):
        for client in pending:
            client.setblocking(False)
            client.connect_ex(str(path))
        with pytest.raises(OSError, match="another process does"):
            check_free(str(path))
    for client in pending:
        client.close()


def test_other_files(tmp_path: Path) -> None:
    """A file that is no socket stays where it is."""
    (tmp_path / "f").touch()
    with pytest.raises(OSError, match="a file that is no socket is there"):
        check_free(str(tmp_path / "f"))


def test_removal(tmp_path: Path) -> None:
    """The file goes, once; what has come in its place stays."""
    path = tmp_path / "s"
    with listening(path):
        ours = SocketFile(str(path))
        ours.remove()
        assert not path.exists()
        with listening(path):
            ours.remove()
            assert path.exists()
    SocketFile(str(tmp_path / "never")).remove()
