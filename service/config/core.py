"""The cores: where they come from, and how long each may take."""

from dataclasses import dataclass, replace
from pathlib import Path

from service.config.address import check_socket_path, checked_host
from service.config.security import CurveFiles
from service.config.timeouts import MAX_TIMEOUT_S
from service.cores.pulse import BEATS_PER_TIMEOUT

_MIN_PING_TIMEOUT_S = 0.1
MAX_DATA_PARALLEL_SIZE = 1024
_WILDCARD_HOSTS = {"*", "0.0.0.0", "[::]"}


@dataclass(frozen=True, kw_only=True)
class CoreTerms:
    """How many cores there are, of ranks 0 and up, and how long each may take."""

    load_timeout_s: float = 600.0
    ping_timeout_s: float = 30.0
    """For how long a core may say nothing, asked or not, before it is taken for stuck."""
    max_restarts: int = 10
    """Of each core, within ten minutes; 0: the first loss of one ends the gateway."""
    restart_wait_s: float = 30.0
    """How long new requests wait while there is no core; 0: they are refused at once."""
    stuck_timeout_s: float | None = None
    """For how long a child may say nothing before it is killed; None: four times ``ping_timeout_s``, inf: for ever."""
    data_parallel_size: int = 1
    coordinator_command: tuple[str, ...] = ()
    """For cores that step in lockstep: what starts their coordinator. Empty: they are independent of each other."""

    def __post_init__(self) -> None:
        if not 0 < self.load_timeout_s <= MAX_TIMEOUT_S:
            raise ValueError(f"core_load_timeout must be in (0, {MAX_TIMEOUT_S:g}] s, got {self.load_timeout_s:g}")
        if not _MIN_PING_TIMEOUT_S <= self.ping_timeout_s <= MAX_TIMEOUT_S:
            bounds = f"[{_MIN_PING_TIMEOUT_S:g}, {MAX_TIMEOUT_S:g}] s"
            raise ValueError(f"core_ping_timeout must be in {bounds}, got {self.ping_timeout_s:g}")
        if self.max_restarts < 0:
            raise ValueError(f"max_core_restarts must be at least 0, got {self.max_restarts}")
        if not 0 <= self.restart_wait_s <= MAX_TIMEOUT_S:
            raise ValueError(f"core_restart_wait must be in [0, {MAX_TIMEOUT_S:g}] s, got {self.restart_wait_s:g}")
        if self.stuck_timeout_s is not None and not self.stuck_timeout_s >= self.ping_timeout_s:
            bound = f"at least core_ping_timeout ({self.ping_timeout_s:g} s), or off"
            raise ValueError(f"core_stuck_timeout must be {bound}, got {self.stuck_timeout_s:g}")
        if not 1 <= self.data_parallel_size <= MAX_DATA_PARALLEL_SIZE:
            bounds = f"[1, {MAX_DATA_PARALLEL_SIZE}]"
            raise ValueError(f"data_parallel_size must be in {bounds}, got {self.data_parallel_size}")
        if self.is_lockstep and self.data_parallel_size < 2:
            raise ValueError("data_parallel_lockstep needs a data_parallel_size of at least 2, got 1")

    @property
    def is_lockstep(self) -> bool:
        """The cores step together."""
        return bool(self.coordinator_command)

    @property
    def awaits_successors(self) -> bool:
        """A core that is lost may be replaced. Not in lockstep: the ranks have met, and go on with nobody else."""
        return self.max_restarts > 0 and not self.is_lockstep

    @property
    def num_beats_to_be_stuck(self) -> float:
        """Of its pulse, see ``service.cores.pulse``."""
        stuck_timeout_s = 4 * self.ping_timeout_s if self.stuck_timeout_s is None else self.stuck_timeout_s
        return stuck_timeout_s / self.ping_timeout_s * BEATS_PER_TIMEOUT


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
    curve: CurveFiles | None = None
    """What cores of other machines are asked for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.command and not self.handshake_address:
            raise ValueError("a core needs a command or a handshake_address")
        if self.handshake_address:
            _check_handshake_address(self.handshake_address)
        if self.curve is not None and self.tcp_host is None:
            raise ValueError(f"curve_key is for a handshake_address at tcp://, got {self.handshake_address!r}")

    def socket_addresses(self, folder: Path) -> tuple[str, str]:
        """Where to bind the sockets of requests and outputs: in ``folder``, or on the host of the handshake."""
        if (host := self.tcp_host) is None:
            return f"ipc://{folder}/requests", f"ipc://{folder}/outputs"
        address = f"tcp://[{host}]:0" if ":" in host else f"tcp://{host}:0"
        return address, address

    def with_flags(self, *flags: str) -> "CoreConfig":
        """Whose cores get ``flags`` too."""
        return replace(self, command=(*self.command, *flags))

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


def _check_handshake_address(address: str) -> None:
    name = "handshake_address"
    scheme, _, rest = address.partition("://")
    if scheme == "ipc" and rest:
        check_socket_path(name, rest)
    elif scheme != "tcp":
        raise ValueError(f"{name} must be tcp://HOST:PORT or ipc:///PATH, got {address!r}")
    elif checked_host(name, rest) in _WILDCARD_HOSTS:
        raise ValueError(f"{name} must name an address that cores can dial, got {address!r}")
