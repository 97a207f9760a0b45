"""Everything a gateway is told."""

import reprlib
from dataclasses import dataclass, field

from service.config.address import is_local, is_port
from service.config.connections import ConnectionsConfig
from service.config.core import CoreConfig
from service.config.kv_events import KvEventsConfig
from service.config.limits import LimitsConfig
from service.config.listen import ListenConfig
from service.config.security import SecurityConfig
from service.config.tracing import TracingConfig
from service.config.workers import WorkersConfig
from service.models import ModelFiles

_MAX_MODEL_NAME_BYTES = 256


@dataclass(frozen=True)
class GatewayConfig:
    """Everything a gateway is told. ``model.name`` is what clients call the model."""

    model: ModelFiles
    core: CoreConfig
    listen: ListenConfig = field(default_factory=ListenConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    max_model_len: int | None = None
    """Longest prompt plus output, in tokens; None = the core's limit, which it cannot exceed."""
    lora_modules: tuple[tuple[str, str], ...] = ()
    """Adapters to load before the first request: names and folders, which are on the cores' machines."""
    security: SecurityConfig = field(default_factory=SecurityConfig)
    tracing: TracingConfig = field(default_factory=TracingConfig)
    connections: ConnectionsConfig = field(default_factory=ConnectionsConfig)
    kv_events: KvEventsConfig | None = None
    """None: nobody can subscribe to them."""
    workers: WorkersConfig = field(default_factory=WorkersConfig)

    def __post_init__(self) -> None:
        _check_model_name(self.model.name)
        if self.kv_events is not None:
            self.kv_events.check_for(self.core)
        if self.max_model_len is not None and self.max_model_len < 2:
            raise ValueError(f"max_model_len must be at least 2, got {self.max_model_len}")
        _check_admin(self.listen.admin_address, self.security)
        if self.workers.is_shared:
            self._check_shareable()

    def _check_shareable(self) -> None:
        if not any(is_port(address) for address in self.listen.grpc_addresses):
            raise ValueError("gateway_workers above 1 need a grpc_address with a port: a unix socket is not shared")
        if self.kv_events is not None and "*" in (self.kv_events.endpoint or ""):
            raise ValueError("gateway_workers above 1 need a kv_events_endpoint that names where cores publish")


def _check_model_name(name: str) -> None:
    """It goes into messages, metrics and log lines."""
    size = len(name.encode(errors="surrogatepass"))
    if not 1 <= size <= _MAX_MODEL_NAME_BYTES or not name.isprintable():
        bound = f"printable and have 1 to {_MAX_MODEL_NAME_BYTES} bytes"
        raise ValueError(f"served_model_name must be {bound}, got {size}: {reprlib.repr(name)}")


def _check_admin(address: str, security: SecurityConfig) -> None:
    """Whoever may call there can stop the service, and load files of the core's machine as adapters."""
    if is_local(address) or security.allow_open_admin or (security.tls and security.admin_key_file):
        return
    needs = "it needs tls_cert and admin_key_file, or allow_open_admin"
    raise ValueError(f"admin_address can be reached from other machines: {needs}, got {address!r}")
