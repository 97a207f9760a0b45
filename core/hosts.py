"""Which hosts share a model: by flags of vLLM's names, or by the variables of whoever started the hosts.

flag             torchrun, Kubeflow                          LeaderWorkerSet
--nnodes         WORLD_SIZE / LOCAL_WORLD_SIZE               LWS_GROUP_SIZE
--node-rank      NODE_RANK, GROUP_RANK, RANK                 LWS_WORKER_INDEX
--master-addr    MASTER_ADDR                                 LWS_LEADER_ADDRESS
--master-port    MASTER_PORT, or the one after it where      29501
                 torchrun itself listens there
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

DEFAULT_MASTER_PORT = 29501
"""vLLM's."""
_MAX_RANKS = 1024
_MAX_PORT = 65535


def _check_range(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{field} must be in [{low}, {high}], got {value}")


@dataclass(frozen=True)
class Hosts:
    """The ``tensor_parallel_size`` ranks of a model, equally many on each of ``num_nodes`` hosts.

    Host 0 runs the core and the first ranks; the others dial ``master_addr``. Raises ValueError.
    """

    tensor_parallel_size: int = 1
    num_nodes: int = 1
    node_rank: int = 0
    master_addr: str = ""
    master_port: int = DEFAULT_MASTER_PORT

    def __post_init__(self) -> None:
        _check_range("tensor_parallel_size", self.tensor_parallel_size, 1, _MAX_RANKS)
        _check_range("nnodes", self.num_nodes, 1, _MAX_RANKS)
        _check_range("node_rank", self.node_rank, 0, self.num_nodes - 1)
        _check_range("master_port", self.master_port, 1, _MAX_PORT)
        if self.tensor_parallel_size % self.num_nodes:
            ranks = f"tensor_parallel_size {self.tensor_parallel_size}"
            raise ValueError(
                f"{ranks} must be a multiple of nnodes {self.num_nodes}: every host has equally many ranks"
            )
        if self.num_nodes > 1 and not self.master_addr:
            raise ValueError(f"master_addr must name host 0, as there are {self.num_nodes} hosts")

    @property
    def only_runs_ranks(self) -> bool:
        """This host has no core, and no front end."""
        return self.node_rank > 0

    @property
    def ranks_here(self) -> range:
        return self.ranks_of(self.node_rank)

    @property
    def ranks_elsewhere(self) -> frozenset[int]:
        return frozenset(range(self.tensor_parallel_size)).difference(self.ranks_here)

    def of_core(self, data_parallel_rank: int) -> "Hosts":
        """As those of another core, which listens at a port of its own."""
        return replace(self, master_port=self.master_port + data_parallel_rank) if self.num_nodes > 1 else self

    def ranks_of(self, node_rank: int) -> range:
        per_node = self.tensor_parallel_size // self.num_nodes
        return range(node_rank * per_node, (node_rank + 1) * per_node)


ALONE = Hosts()


def find_hosts(
    tensor_parallel_size: int,
    num_nodes: int | None,
    node_rank: int | None,
    master_addr: str | None,
    master_port: int | None,
    environment: Mapping[str, str],
) -> Hosts:
    """What is None comes from ``environment``, which counts only if there are several ranks. Raises ValueError."""
    told = _ONE_HOST
    if tensor_parallel_size > 1 and num_nodes != 1:
        told = _read(environment)
    return Hosts(
        tensor_parallel_size,
        told.num_nodes if num_nodes is None else num_nodes,
        told.node_rank if node_rank is None else node_rank,
        told.master_addr if master_addr is None else master_addr,
        told.master_port if master_port is None else master_port,
    )


class _Told(NamedTuple):
    num_nodes: int = 1
    node_rank: int = 0
    master_addr: str = ""
    master_port: int = DEFAULT_MASTER_PORT


_ONE_HOST = _Told()


def _read(environment: Mapping[str, str]) -> _Told:
    if "WORLD_SIZE" in environment:
        return _read_torchrun(environment)
    if "LWS_GROUP_SIZE" in environment:
        num_nodes, index = (_number(environment, f"LWS_{name}") for name in ("GROUP_SIZE", "WORKER_INDEX"))
        return _Told(num_nodes, index, environment.get("LWS_LEADER_ADDRESS", ""))
    return _ONE_HOST


def _read_torchrun(environment: Mapping[str, str]) -> _Told:
    if (per_host := _number(environment, "LOCAL_WORLD_SIZE", 1)) != 1:
        raise ValueError(
            f"LOCAL_WORLD_SIZE must be 1, got {per_host}: one process is started on each host, and starts its ranks"
        )
    names = [name for name in ("NODE_RANK", "GROUP_RANK", "RANK") if name in environment]
    port = _number(environment, "MASTER_PORT", DEFAULT_MASTER_PORT)
    return _Told(
        _number(environment, "WORLD_SIZE"),
        _number(environment, names[0]) if names else 0,
        environment.get("MASTER_ADDR", ""),
        port + (environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"),
    )


def _number(environment: Mapping[str, str], name: str, default: int = 0) -> int:
    value = environment.get(name, str(default))
    if not value.isascii() or not value.isdigit():
        raise ValueError(f"{name} in the environment must be a number, got {value!r:.100}")
    return int(value)
