"""TCP ports of this machine that nobody else is given until those they are meant for listen on them.

A socket that is bound and does not listen keeps its port: no process is given it that asks for any port, or connects
from one. Whoever asks for this very port with SO_REUSEADDR gets it, as every server of TCP does.
"""

import socket


class ReservedPorts:
    """Kept from the start until ``close``."""

    def __init__(self, host: str, num_ports: int) -> None:
        """Raises OSError if ``host`` is no address of this machine."""
        self._sockets = [_bound(host) for _ in range(num_ports)]
        self.numbers: list[int] = [sock.getsockname()[1] for sock in self._sockets]

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()


def _bound(host: str) -> socket.socket:
    family, _, _, _, where = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
    except OSError:
        sock.close()
        raise
    return sock
