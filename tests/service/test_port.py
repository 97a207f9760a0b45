"""Ports of this machine, free and taken."""

import socket
from collections.abc import Iterator

import pytest

from service.port import check_port


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on, at 127.0.0.1 only."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::]"])
def test_any_port(host: str) -> None:
    """Port 0 is always free."""
    check_port(f"{host}:0")


@pytest.mark.parametrize(("host", "which"), [("127.0.0.1", ""), ("localhost", r" \(\S+:\d+\)"), ("0.0.0.0", "")])
def test_taken(taken: int, host: str, which: str) -> None:
    """A name is taken as soon as one of its addresses is, which is told."""
    with pytest.raises(OSError, match=f"Address already in use{which}$"):
        check_port(f"{host}:{taken}")


def test_free_again(taken: int) -> None:
    """Connections that wind down do not keep a port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()
    check_port(f"127.0.0.1:{port}")
    assert port != taken


@pytest.mark.parametrize("host", ["192.0.2.200", "no.such.host.invalid"])
def test_not_of_this_machine(host: str) -> None:
    """Another machine's address and a name that means nothing are refused with the system's words."""
    with pytest.raises(OSError, match=r"Cannot assign|Name or service not known|failure in name resolution"):
        check_port(f"{host}:1")
