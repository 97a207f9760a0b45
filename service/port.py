"""Whether a TCP port can be listened on, asked before gRPC is: it says less, and takes one of a name's addresses."""

import errno
import socket
from typing import Any

_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


def check_port(address: str) -> None:
    """Raises OSError unless ``HOST:PORT`` is free on every address of this machine that HOST stands for.

    Of a name such as localhost, all must be ours: a client may come to any. Those that the machine does not have, as
    ::1 without IPv6, do not count while there is another.
    """
    host, _, port = address.rpartition(":")
    infos = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    failures = [error for info in infos if (error := _failure_to_bind(info[0], info[4], address)) is not None]
    serious = [error for error in failures if error.errno not in _NOT_HERE]
    if serious or len(failures) == len(infos):
        raise [*serious, *failures][0]


def _failure_to_bind(family: socket.AddressFamily, where: tuple[Any, ...], address: str) -> OSError | None:
    """It names the one of ``address``, unless that is the address itself."""
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        host = f"[{where[0]}]" if family is socket.AF_INET6 else where[0]
        which = f"{host}:{where[1]}"
        return OSError(error.errno, error.strerror if which == address else f"{error.strerror} ({which})")
    return None
