"""Ports that are kept for others."""

import socket

import pytest

from service.reserved_ports import ReservedPorts


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("where", ["there", "everywhere"])
def test_a_port_is_kept_for_a_server(host: str, where: str) -> None:
    """All differ. A server that asks for one of them gets it, there or on all addresses; who asks for any does not."""
    ports = ReservedPorts(host, 6)
    assert len({*ports.numbers}) == 6
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in ports.numbers:
        with socket.socket(family) as other, pytest.raises(OSError, match="in use"):
            other.bind((host, port))
        with (
            socket.create_server((host if where == "there" else "", port), family=family),
            socket.create_connection((host, port)),
        ):
            pass
    ports.close()


def test_a_host_that_is_not_this_machine() -> None:
    """It is refused."""
    with pytest.raises(OSError, match="Cannot assign"):
        ReservedPorts("192.0.2.1", 1)
