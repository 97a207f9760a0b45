"""Rank groups within one process, for engines that run in threads."""

import threading
from collections.abc import Sequence

from core.data_parallel.rank_group import RankGroupError


class FakeRankGroup:
    """One rank's end, as strict as a real one: who leaves ends the group for all."""

    def __init__(self, rank: int, meeting: "_Meeting") -> None:
        self.rank = rank
        self.size = meeting.barrier.parties
        self._meeting = meeting

    def all_reduce_max(self, values: Sequence[int]) -> list[int]:
        """As RankGroup has it; it waits without a limit for a rank that neither comes nor leaves."""
        self._meeting.values[self.rank] = values
        try:
            self._meeting.barrier.wait()
        except threading.BrokenBarrierError:
            raise RankGroupError("a rank has left the group") from None
        # Nobody can overwrite it before this rank comes to the next meeting.
        return self._meeting.maxima

    def close(self) -> None:
        self._meeting.barrier.abort()


class _Meeting:
    """Where the ranks come together: what each brought, and what all of them take away."""

    def __init__(self, size: int) -> None:
        self.values: list[Sequence[int]] = [()] * size
        self.maxima: list[int] = []
        self.barrier = threading.Barrier(size, self._reduce)

    def _reduce(self) -> None:
        self.maxima = [max(column) for column in zip(*self.values, strict=True)]


def make_fake_groups(size: int) -> list[FakeRankGroup]:
    """The ends of one group, by rank."""
    meeting = _Meeting(size)
    return [FakeRankGroup(rank, meeting) for rank in range(size)]
