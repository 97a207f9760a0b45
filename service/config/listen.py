"""Where the gateway serves."""

from dataclasses import dataclass

from service.config.address import check_listen_address, checked_host

_MAX_SOCKET_MODE = 0o770


@dataclass(frozen=True)
class ListenConfig:
    """Where to serve: ``HOST:PORT`` (port 0 = any) or ``unix:/PATH``."""

    grpc_addresses: tuple[str, ...] = ("127.0.0.1:50051",)
    admin_address: str = "127.0.0.1:50052"
    metrics_address: str = ""
    """``HOST:PORT``; empty = no metrics."""
    plaintext_addresses: tuple[str, ...] = ()
    """As ``grpc_addresses``, but without TLS and keys though they are configured: for neighbours that have neither."""
    health_address: str = ""
    """Where health alone is served, without TLS and keys; empty = nowhere but at the other addresses."""
    socket_mode: int = 0o600
    """Permissions of the files of unix sockets. Others than owner and group never have any."""

    def __post_init__(self) -> None:
        if not self.grpc_addresses:
            raise ValueError("grpc_address must be given at least once")
        for address in self.grpc_addresses:
            check_listen_address("grpc_address", address)
        for address in self.plaintext_addresses:
            check_listen_address("plaintext_address", address)
        check_listen_address("admin_address", self.admin_address)
        if self.health_address:
            check_listen_address("health_address", self.health_address)
        if self.metrics_address:
            checked_host("metrics_address", self.metrics_address)
        if self.socket_mode & ~_MAX_SOCKET_MODE:
            raise ValueError(f"socket_mode must be within {_MAX_SOCKET_MODE:o}, got {self.socket_mode:o}")
