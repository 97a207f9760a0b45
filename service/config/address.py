"""Where to listen: ``HOST:PORT``, or ``unix:/PATH``."""

import ipaddress
import os
import re

_HOST_PORT = re.compile(r"(?P<host>\[[^\]]+\]|[^:/\s]+):(?P<port>\d{1,5})")
MAX_SOCKET_PATH_BYTES = 107
"""Of the path of a unix socket, as Linux has it."""


def socket_path(address: str) -> str:
    """The path in ``unix:PATH`` or ``unix:///PATH``."""
    return address.removeprefix("unix:").removeprefix("//")


def check_listen_address(name: str, address: str) -> None:
    if not address.startswith("unix:"):
        checked_host(name, address)
    elif socket_path(address):
        check_socket_path(name, socket_path(address))
    else:
        raise ValueError(f"{name} must be unix:/PATH, got {address!r}")


def check_socket_path(name: str, path: str) -> None:
    size = len(os.fsencode(path))
    if size > MAX_SOCKET_PATH_BYTES or "\0" in path:
        bound = f"at most {MAX_SOCKET_PATH_BYTES} bytes, none of them 0"
        raise ValueError(f"{name} must have a path of {bound}, got {size}: {path!r}")


def checked_host(name: str, address: str) -> str:
    match = _HOST_PORT.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f"{name} must be HOST:PORT with a port in [0, 65535], got {address!r}")
    return match["host"]


def is_port(address: str) -> bool:
    """Whether several processes can listen there: not on a unix socket."""
    return not address.startswith("unix:")


def is_local(address: str) -> bool:
    """Whether only this machine can reach it: a unix socket, or an address of the loopback."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
