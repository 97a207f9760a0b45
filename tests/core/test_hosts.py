"""Which hosts share a model, as flags and the environment say."""

from typing import Any

import pytest

from core.hosts import ALONE, DEFAULT_MASTER_PORT, Hosts, find_hosts

LWS = {"LWS_LEADER_ADDRESS": "leader.ns", "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1"}
TORCHRUN = {
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
    "WORLD_SIZE": "2",
    "RANK": "1",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "GROUP_RANK": "1",
}


def found(size: int, environment: dict[str, str], **flags: Any) -> Hosts:
    given = {"num_nodes": None, "node_rank": None, "master_addr": None, "master_port": None, **flags}
    return find_hosts(size, **given, environment=environment)


@pytest.mark.parametrize(
    ("environment", "address", "port"),
    [
        (LWS, "leader.ns", DEFAULT_MASTER_PORT),
        (TORCHRUN, "10.0.0.1", 29500),
        ({**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True"}, "10.0.0.1", 29501),
        ({"MASTER_ADDR": "10.0.0.1", "WORLD_SIZE": "2", "NODE_RANK": "1"}, "10.0.0.1", DEFAULT_MASTER_PORT),
        ({**LWS, **TORCHRUN}, "10.0.0.1", 29500),
    ],
    ids=["leader-worker-set", "torchrun", "torchrun-listens-there-itself", "by-hand", "the-inner-one"],
)
def test_environment(environment: dict[str, str], address: str, port: int) -> None:
    """Of whatever started the hosts: here the second of two."""
    hosts = found(4, environment)
    assert hosts == Hosts(4, 2, 1, address, port)
    assert (hosts.only_runs_ranks, list(hosts.ranks_here)) == (True, [2, 3])


def test_flags_come_first() -> None:
    """One by one; one host needs nothing of the environment."""
    assert found(4, LWS, node_rank=0, master_port=7) == Hosts(4, 2, 0, "leader.ns", 7)
    assert found(4, LWS, num_nodes=1) == Hosts(4)
    assert found(6, {}, num_nodes=3, node_rank=2, master_addr="h").ranks_here == range(4, 6)


def test_the_environment_is_for_models_of_several_ranks() -> None:
    """Others are a core's own, in whatever group its host is."""
    assert found(1, LWS) == found(1, TORCHRUN) == ALONE
    assert found(2, {}) == Hosts(2)


def test_cores_of_other_ranks_listen_elsewhere() -> None:
    """Where they have hosts to wait for."""
    assert found(2, LWS).of_core(3).master_port == DEFAULT_MASTER_PORT + 3
    assert Hosts(2).of_core(3) == Hosts(2)


@pytest.mark.parametrize(
    ("size", "environment", "flags", "error"),
    [
        (3, LWS, {}, "tensor_parallel_size 3 must be a multiple of nnodes 2: every host has equally many ranks"),
        (2, {}, {"num_nodes": 2}, "master_addr must name host 0, as there are 2 hosts"),
        (2, {}, {"node_rank": 1}, r"node_rank must be in \[0, 0\], got 1"),
        (2, {**LWS, "LWS_GROUP_SIZE": "two"}, {}, "LWS_GROUP_SIZE in the environment must be a number, got 'two'"),
        (2, {**TORCHRUN, "LOCAL_WORLD_SIZE": "2"}, {}, "LOCAL_WORLD_SIZE must be 1, got 2: one process is started on"),
        (2000, {}, {}, r"tensor_parallel_size must be in \[1, 1024\], got 2000"),
    ],
)
def test_errors(size: int, environment: dict[str, str], flags: dict[str, Any], error: str) -> None:
    """Each names the flag or the variable."""
    with pytest.raises(ValueError, match=error):
        found(size, environment, **flags)
