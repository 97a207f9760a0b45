"""A gRPC server and the addresses it listens on."""

import socket
from collections.abc import Iterable

import grpc

from service.config import socket_path
from service.servicers.edge import ErrorEdge

MAX_RECEIVE_BYTES = 16 * 2**20
"""Largest message taken: some two million prompt tokens."""
MAX_PENDING_CALLS = 2**16
_OPTIONS = [
    ("grpc.so_reuseport", 0),  # else a second server on the same port would get half of the calls
    ("grpc.max_receive_message_length", MAX_RECEIVE_BYTES),
    # A burst of calls waits its turn, to be served or refused with a reason; the default cancels those beyond 1,000.
    ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
    # Clients may ping as often as they like, also while no call runs: a long prefill is silent for minutes, and the
    # default answers the third early ping with GOAWAY.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 0),
    ("grpc.http2.max_ping_strikes", 0),
]


class ListenError(Exception):
    """An address that cannot be listened on; the text names it."""


class Listener:
    """One gRPC server. ``addresses`` are those it listens on, with the real ports."""

    def __init__(
        self,
        options: Iterable[tuple[str, int]] = (),
        interceptors: Iterable[grpc.aio.ServerInterceptor] = (),  # type: ignore[type-arg]
    ) -> None:
        """``interceptors`` come before the edge where errors become statuses."""
        self.server = grpc.aio.server(interceptors=[*interceptors, ErrorEdge()], options=[*_OPTIONS, *options])
        self.addresses: list[str] = []

    def bind(self, address: str) -> None:
        """Listen on ``HOST:PORT`` (port 0 = any) or ``unix:/PATH``. Raises ListenError if that is not possible."""
        if address.startswith("unix:"):
            _check_unix_socket_is_free(address)
        try:
            port = self.server.add_insecure_port(address)
        except RuntimeError as error:
            why = "can its folder be written" if address.startswith("unix:") else "is it in use, or of another host"
            raise ListenError(f"cannot listen on {address}: {why}?") from error
        host = address.rpartition(":")[0]
        self.addresses.append(address if address.startswith("unix:") else f"{host}:{port}")


def _check_unix_socket_is_free(address: str) -> None:
    """gRPC would take the path away from a server that listens on it."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            is_taken = probe.connect_ex(socket_path(address)) == 0
        except (OSError, ValueError) as error:
            raise ListenError(f"cannot listen on {address}: {error}") from error
    if is_taken:
        raise ListenError(f"cannot listen on {address}: another process does")
