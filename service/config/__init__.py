"""The gateway's settings: small frozen pieces, validated once; each class gets only its own."""

from service.config.address import MAX_SOCKET_PATH_BYTES, is_local, socket_path
from service.config.connections import ConnectionsConfig
from service.config.core import MAX_DATA_PARALLEL_SIZE, CoreConfig, CoreTerms
from service.config.gateway import GatewayConfig
from service.config.kv_events import KvEventsConfig
from service.config.limits import LimitsConfig
from service.config.listen import ListenConfig
from service.config.security import CurveFiles, SecurityConfig, TlsConfig
from service.config.tracing import TracingConfig
from service.config.workers import MAX_GATEWAY_WORKERS, WorkersConfig

__all__ = [
    "MAX_DATA_PARALLEL_SIZE",
    "MAX_GATEWAY_WORKERS",
    "MAX_SOCKET_PATH_BYTES",
    "ConnectionsConfig",
    "CoreConfig",
    "CoreTerms",
    "CurveFiles",
    "GatewayConfig",
    "KvEventsConfig",
    "LimitsConfig",
    "ListenConfig",
    "SecurityConfig",
    "TlsConfig",
    "TracingConfig",
    "WorkersConfig",
    "is_local",
    "socket_path",
]
