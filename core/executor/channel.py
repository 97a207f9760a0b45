"""Messages between a core and a rank, over one stream: a pair of sockets on this host, tcp to others.

The stream's end is how each notices that the other is gone: the system closes it, however a process dies.
"""

import contextlib
import os
import socket
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from core.wire.codec import Decoder, Frame

T = TypeVar("T")

_COUNT_BYTES = 4
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3))
"""A host that is gone without a word is noticed after some ten seconds."""
_UNACKNOWLEDGED_MS = 10_000
_RETRY_S = 0.2


class Channel(Generic[T]):
    """One end. One thread may send while another receives."""

    def __init__(self, connection: "Connection[Any, Any]", incoming: type[T]) -> None:
        self._connection = connection
        self._decoder = Decoder(incoming)

    def send(self, frames: Sequence[Frame]) -> None:
        """What an Encoder made of a message. Raises OSError if the other side is gone."""
        document, *arrays = frames
        self._connection.send_bytes(len(arrays).to_bytes(_COUNT_BYTES, "little") + bytes(document))
        for array in arrays:
            self._connection.send_bytes(array)

    def receive(self, max_bytes: int | None = None) -> T:
        """The next message. Raises EOFError or OSError if the other side is gone, WireError for one that is none."""
        head = self._connection.recv_bytes(max_bytes)
        num_arrays = int.from_bytes(head[:_COUNT_BYTES], "little")
        arrays = [bytearray(self._connection.recv_bytes(max_bytes)) for _ in range(num_arrays)]
        return self._decoder.decode([memoryview(head)[_COUNT_BYTES:], *arrays])

    def has_input_within(self, seconds: float) -> bool:
        """Whether there is a message, or the beginning of one, or the end."""
        return self._connection.poll(seconds)

    def hang_up(self) -> None:
        """Both sides read the end of the stream, even one that is reading now."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as stream:
            stream.shutdown(socket.SHUT_RDWR)


def as_connection(stream: socket.socket) -> "Connection[Any, Any]":
    """``stream``, which belongs to the connection from now on."""
    stream.setblocking(True)
    if stream.family in (socket.AF_INET, socket.AF_INET6):
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
        for option, value in _KEEPALIVE:
            stream.setsockopt(socket.IPPROTO_TCP, option, value)
    return Connection(stream.detach())


def listen(host: str, port: int) -> socket.socket:
    """Raises OSError if ``host`` is not an address of this machine, or the port is taken."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family)


def dial(host: str, port: int, timeout_s: float) -> socket.socket:
    """Try until somebody listens there. Raises OSError if nobody does in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return socket.create_connection((host, port), timeout=max(deadline - time.monotonic(), _RETRY_S))
        except OSError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_RETRY_S)
