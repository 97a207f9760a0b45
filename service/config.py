"""The gateway's settings: small frozen pieces, validated once; each class gets only its own."""

import os
import re
import reprlib
from dataclasses import dataclass, field
from pathlib import Path

from core.wire.sampling_params import ALL_LOGPROBS, MAX_LOGPROBS
from service.models import ModelFiles

_HOST_PORT = re.compile(r"(?P<host>\[[^\]]+\]|[^:/\s]+):(?P<port>\d{1,5})")
MAX_SOCKET_PATH_BYTES = 107
"""Of the path of a unix socket, as Linux has it."""
_MAX_TIMEOUT_S = 1e6
_MIN_PING_TIMEOUT_S = 0.1
MAX_DATA_PARALLEL_SIZE = 1024
_MAX_MODEL_NAME_BYTES = 256
_WILDCARD_HOSTS = {"*", "0.0.0.0", "[::]"}


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
            _check_listen_address("grpc_address", address)
        _check_listen_address("admin_address", self.admin_address)
        if self.metrics_address:
            _checked_host("metrics_address", self.metrics_address)


@dataclass(frozen=True)
class LimitsConfig:
    """Bounds of what is taken on, and how long a drain may last."""

    max_queued_requests: int = 2048
    """Sequences at once, running and waiting together; a request counts ``n``."""
    drain_timeout_s: float = 30.0
    max_logprobs: int = MAX_LOGPROBS
    """Most log-probabilities per token that a request may ask for; -1: those of the whole vocabulary."""

    def __post_init__(self) -> None:
        if self.max_logprobs < ALL_LOGPROBS:
            raise ValueError(f"max_logprobs must be -1 (all) or at least 0, got {self.max_logprobs}")
        if self.max_queued_requests < 1:
            raise ValueError(f"max_queued_requests must be at least 1, got {self.max_queued_requests}")
        if not 0 <= self.drain_timeout_s <= _MAX_TIMEOUT_S:
            raise ValueError(f"drain_timeout must be in [0, {_MAX_TIMEOUT_S:g}] s, got {self.drain_timeout_s:g}")


@dataclass(frozen=True, kw_only=True)
class CoreTerms:
    """How many cores there are, of ranks 0 and up, and how long each may take."""

    load_timeout_s: float = 600.0
    ping_timeout_s: float = 30.0
    """For how long a core may say nothing, asked or not, before it is taken for stuck."""
    data_parallel_size: int = 1
    coordinator_command: tuple[str, ...] = ()
    """For cores that step in lockstep: what starts their coordinator. Empty: they are independent of each other."""

    def __post_init__(self) -> None:
        if not 0 < self.load_timeout_s <= _MAX_TIMEOUT_S:
            raise ValueError(f"core_load_timeout must be in (0, {_MAX_TIMEOUT_S:g}] s, got {self.load_timeout_s:g}")
        if not _MIN_PING_TIMEOUT_S <= self.ping_timeout_s <= _MAX_TIMEOUT_S:
            bounds = f"[{_MIN_PING_TIMEOUT_S:g}, {_MAX_TIMEOUT_S:g}] s"
            raise ValueError(f"core_ping_timeout must be in {bounds}, got {self.ping_timeout_s:g}")
        if not 1 <= self.data_parallel_size <= MAX_DATA_PARALLEL_SIZE:
            bounds = f"[1, {MAX_DATA_PARALLEL_SIZE}]"
            raise ValueError(f"data_parallel_size must be in {bounds}, got {self.data_parallel_size}")
        if self.is_lockstep and self.data_parallel_size < 2:
            raise ValueError("data_parallel_lockstep needs a data_parallel_size of at least 2, got 1")

    @property
    def is_lockstep(self) -> bool:
        """The cores step together."""
        return bool(self.coordinator_command)


@dataclass(frozen=True)
class CoreConfig(CoreTerms):
    """The cores: a ``command`` to start as children, or else a ``handshake_address`` that they will dial.

    Both: the command starts one child that brings up cores which dial the address; others may come from elsewhere.
    """

    command: tuple[str, ...] = ()
    handshake_address: str = ""
    terminate_grace_s: float = 5.0
    """How long a child may take over SIGTERM before it is killed."""
    tensor_ipc: bool = False
    """Hand large tensors to cores that are children through shared memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.command and not self.handshake_address:
            raise ValueError("a core needs a command or a handshake_address")
        if self.handshake_address:
            _check_handshake_address(self.handshake_address)

    def socket_addresses(self, folder: Path) -> tuple[str, str]:
        """Where to bind the sockets of requests and outputs: in ``folder``, or on the host of the handshake."""
        if (host := self.tcp_host) is None:
            return f"ipc://{folder}/requests", f"ipc://{folder}/outputs"
        address = f"tcp://[{host}]:0" if ":" in host else f"tcp://{host}:0"
        return address, address

    @property
    def tcp_host(self) -> str | None:
        """Where cores dial over the network, an IPv6 address without brackets; None: they are on this machine."""
        scheme, _, rest = self.handshake_address.partition("://")
        return rest.rpartition(":")[0].strip("[]") if scheme == "tcp" else None

    @property
    def is_local(self) -> bool:
        """The cores themselves are the children, and dial an address that nobody else knows."""
        return bool(self.command) and not self.handshake_address

    @property
    def num_children(self) -> int:
        """Processes to start: one for each core, or the one that brings them up."""
        return self.data_parallel_size if self.is_local else int(bool(self.command))


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

    def __post_init__(self) -> None:
        _check_model_name(self.model.name)
        if self.max_model_len is not None and self.max_model_len < 2:
            raise ValueError(f"max_model_len must be at least 2, got {self.max_model_len}")


def _check_model_name(name: str) -> None:
    """It goes into messages, metrics and log lines."""
    size = len(name.encode(errors="surrogatepass"))
    if not 1 <= size <= _MAX_MODEL_NAME_BYTES or not name.isprintable():
        bound = f"printable and have 1 to {_MAX_MODEL_NAME_BYTES} bytes"
        raise ValueError(f"served_model_name must be {bound}, got {size}: {reprlib.repr(name)}")


def socket_path(address: str) -> str:
    """The path in ``unix:PATH`` or ``unix:///PATH``."""
    return address.removeprefix("unix:").removeprefix("//")


def _check_listen_address(name: str, address: str) -> None:
    if not address.startswith("unix:"):
        _checked_host(name, address)
    elif socket_path(address):
        _check_socket_path(name, socket_path(address))
    else:
        raise ValueError(f"{name} must be unix:/PATH, got {address!r}")


def _check_handshake_address(address: str) -> None:
    name = "handshake_address"
    scheme, _, rest = address.partition("://")
    if scheme == "ipc" and rest:
        _check_socket_path(name, rest)
    elif scheme != "tcp":
        raise ValueError(f"{name} must be tcp://HOST:PORT or ipc:///PATH, got {address!r}")
    elif _checked_host(name, rest) in _WILDCARD_HOSTS:
        raise ValueError(f"{name} must name an address that cores can dial, got {address!r}")


def _check_socket_path(name: str, path: str) -> None:
    size = len(os.fsencode(path))
    if size > MAX_SOCKET_PATH_BYTES or "\0" in path:
        bound = f"at most {MAX_SOCKET_PATH_BYTES} bytes, none of them 0"
        raise ValueError(f"{name} must have a path of {bound}, got {size}: {path!r}")


def _checked_host(name: str, address: str) -> str:
    match = _HOST_PORT.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f"{name} must be HOST:PORT with a port in [0, 65535], got {address!r}")
    return match["host"]
