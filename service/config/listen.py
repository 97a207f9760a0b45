"""Where the gateway serves."""

from dataclasses import dataclass

from service.config.address import check_listen_address, checked_host


@dataclass(frozen=True)
class ListenConfig:
    """Where to serve: ``HOST:PORT`` (port 0 = any) or ``unix:/PATH``."""

    grpc_addresses: tuple[str, ...] = ("127.0.0.1:50051",)
    admin_address: str = "127.0.0.1:50052"
    metrics_address: str = ""
    """``HOST:PORT``; empty = no metrics."""

    def __post_init__(self) -> None:
        if not self.grpc_addresses:
            raise ValueError("grpc_address must be given at least once")
        for address in self.grpc_addresses:
            check_listen_address("grpc_address", address)
        check_listen_address("admin_address", self.admin_address)
        if self.metrics_address:
            checked_host("metrics_address", self.metrics_address)
