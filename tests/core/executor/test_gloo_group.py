"""Ranks that agree over gloo. A rank of another process, and its death, are in tests/core/data_parallel."""

import socket
import threading

import pytest

from core.data_parallel.rank_group import RankGroupError
from core.executor.gloo_group import GlooRankGroup


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def join_both(port: int) -> list[GlooRankGroup]:
    groups: dict[int, GlooRankGroup] = {}

    def join(rank: int) -> None:
        groups[rank] = GlooRankGroup("127.0.0.1", port, rank, 2)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [groups[0], groups[1]]


def test_maxima() -> None:
    """Every rank learns the maximum of each value, up to 63 bits."""
    groups = join_both(free_port())
    learned: dict[int, list[int]] = {}

    def meet(rank: int) -> None:
        learned[rank] = groups[rank].all_reduce_max([rank, -rank, 2**62 - rank, True])

    other = threading.Thread(target=meet, args=(1,))
    other.start()
    meet(0)
    other.join()
    assert learned == {0: [1, 0, 2**62, 1], 1: [1, 0, 2**62, 1]}


def test_leaving() -> None:
    """Who has left cannot be asked; the others learn of it when they ask."""
    group, other = join_both(free_port())
    other.close()
    other.close()
    with pytest.raises(RankGroupError, match="left"):
        other.all_reduce_max([1])
    with pytest.raises(RankGroupError, match="agree"):
        group.all_reduce_max([1])


def test_nobody_comes() -> None:
    """A rank does not wait for the others for ever."""
    with pytest.raises(RankGroupError, match="rank 0 of 2 cannot join the group"):
        GlooRankGroup("127.0.0.1", free_port(), 0, 2, join_timeout_s=0.1)
