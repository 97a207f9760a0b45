"""A gRPC server and the addresses it listens on."""

import enum
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import grpc

from core.wire.socket_file import SocketFile, check_free
from service.config import ConnectionsConfig, socket_path
from service.port import check_port
from service.security.certificates import Certificates
from service.servicers.edge import ErrorEdge
from service.yielding_threads import yielding_threads

MAX_PENDING_CALLS = 2**16
_OPTIONS = [
    # A burst of calls waits its turn, to be served or refused with a reason; the default cancels those beyond 1,000.
    ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
    # Clients may ping as often as they like, also while no call runs: a long prefill is silent for minutes, and the
    # default answers the third early ping with GOAWAY.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 0),
    ("grpc.http2.max_ping_strikes", 0),
    # What nobody reads yet stays with its client, but for 64 KiB: with windows that grow with the line's speed, 10 MB
    # came in of each of 200 calls that waited. A message that is being read has the window that it needs all the same.
    ("grpc.http2.bdp_probe", 0),
    # Ours to silent clients: as many as there are intervals, not two.
    ("grpc.http2.max_pings_without_data", 0),
]


def connection_options(config: ConnectionsConfig) -> list[tuple[str, int]]:
    """``config`` in gRPC's words."""
    options = [
        ("grpc.max_receive_message_length", config.max_message_bytes),
        # Two bounds, between which gRPC refuses at random.
        ("grpc.max_metadata_size", config.max_metadata_bytes),
        ("grpc.absolute_max_metadata_size", config.max_metadata_bytes),
        ("grpc.max_concurrent_streams", config.max_concurrent_streams),
        ("grpc.server_handshake_timeout_ms", _ms(config.client_handshake_timeout_s)),
    ]
    if config.max_connection_age_s:
        options += [
            ("grpc.max_connection_age_ms", _ms(config.max_connection_age_s)),
            ("grpc.max_connection_age_grace_ms", _ms(config.max_connection_age_grace_s)),
        ]
    if config.keepalive_interval_s:
        options += [
            ("grpc.keepalive_time_ms", _ms(config.keepalive_interval_s)),
            ("grpc.keepalive_timeout_ms", _ms(config.keepalive_timeout_s)),
            # That one is for a machine that is gone, and TCP's; this one for a process that hangs. It would be 60 s.
            ("grpc.http2.ping_timeout_ms", _ms(config.keepalive_timeout_s)),
        ]
    return options


def _ms(seconds: float) -> int:
    return math.ceil(seconds * 1000)


class PortUse(enum.Enum):
    """Who else may listen on a port. Without need nobody: a second server on it would get half of the calls."""

    ALONE = "nobody"
    FIRST = "those that come later"
    JOIN = "those that are there"


class ListenError(Exception):
    """An address that cannot be listened on; the text names it."""


class Listener:
    """One gRPC server. ``addresses`` are those it listens on, with the real ports."""

    def __init__(
        self,
        options: Iterable[tuple[str, int]] = (),
        interceptors: Iterable[grpc.aio.ServerInterceptor] = (),  # type: ignore[type-arg]
        connections: ConnectionsConfig | None = None,
        certificates: Certificates | None = None,
        socket_mode: int = 0o600,
        edge: ErrorEdge | None = None,
        port_use: PortUse = PortUse.ALONE,
    ) -> None:
        """``interceptors`` come before the ``edge`` where errors become statuses, one of its own if none is given.

        With ``certificates`` all is TLS.
        """
        behind = [*interceptors, edge or ErrorEdge()]
        sharing = ("grpc.so_reuseport", int(port_use is not PortUse.ALONE))
        all_options = [sharing, *_OPTIONS, *connection_options(connections or ConnectionsConfig()), *options]
        with yielding_threads():
            self.server = grpc.aio.server(interceptors=behind, options=all_options)
        self.addresses: list[str] = []
        self._certificates = certificates
        self._socket_mode = socket_mode
        self._port_use = port_use
        self._files: list[SocketFile] = []

    def bind(self, address: str, flag: str = "--grpc-address") -> None:
        """Listen on ``HOST:PORT`` (port 0 = any) or ``unix:/PATH``.

        Raises ListenError if that is not possible, which names the ``flag`` that asks for it.
        """
        try:
            if address.startswith("unix:"):
                self._bind_file(address)
            else:
                self._bind_port(address)
        except ListenError as error:
            raise ListenError(f"cannot listen on {address} ({flag}): {error}") from error.__cause__

    def _bind_port(self, address: str) -> None:
        try:
            if self._port_use is not PortUse.JOIN:
                check_port(address)
            port = self._add_port(address)
        except (OSError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) else "is it in use, or of another host?"
            raise ListenError(why) from error
        self.addresses.append(f"{address.rpartition(':')[0]}:{port}")

    async def stop(self, grace_s: float) -> None:
        """Take no new call, let those that run go on for so long, and leave no socket behind."""
        await self.server.stop(grace_s)
        for file in self._files:
            file.remove()

    def _add_port(self, address: str) -> int:
        if self._certificates is None:
            return self.server.add_insecure_port(address)
        return self.server.add_secure_port(address, self._certificates.credentials())

    def _bind_file(self, address: str) -> None:
        path = socket_path(address)
        try:
            check_free(path)
            with _files_of_mode(self._socket_mode):
                self._add_port(address)
        except OSError as error:
            raise ListenError(error.strerror) from error
        except RuntimeError as error:
            raise ListenError("can its folder be written?") from error
        # gRPC removes it with a server that was started, but not with one that could not be.
        self._files.append(SocketFile(path))
        self.addresses.append(address)


@contextmanager
def _files_of_mode(mode: int) -> Iterator[None]:
    """Sockets are made with at most these permissions: to take some away afterwards would be too late."""
    before = os.umask(0o777 & ~mode)
    try:
        yield
    finally:
        os.umask(before)
