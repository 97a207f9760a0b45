"""The group of ranks within one process."""

import threading

import pytest

from core.data_parallel.fake_group import make_fake_groups
from core.data_parallel.rank_group import RankGroupError


def test_maxima() -> None:
    """Every rank learns the maximum of each value, meeting after meeting."""
    groups = make_fake_groups(3)
    learned: list[list[list[int]]] = [[], [], []]

    def meet(rank: int) -> None:
        learned[rank] = [groups[rank].all_reduce_max([rank + number, -rank]) for number in range(100)]

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert learned == [[[2 + number, 0] for number in range(100)]] * 3


def test_leaving() -> None:
    """Who leaves ends the group for the others, also for those who come later."""
    group, other = make_fake_groups(2)
    other.close()
    other.close()
    for _ in range(2):
        with pytest.raises(RankGroupError, match="left"):
            group.all_reduce_max([1])
