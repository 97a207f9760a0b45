"""What lockstep asks of the connection between the ranks."""

from collections.abc import Sequence
from typing import Protocol


class RankGroupError(Exception):
    """The ranks cannot agree any more: one is gone, or did not answer in time."""


class RankGroup(Protocol):
    """One rank's end of the group. Used by its busy loop alone."""

    rank: int
    size: int

    def all_reduce_max(self, values: Sequence[int]) -> list[int]:
        """The maximum over all ranks of each value, 63 bits. Waits until every rank has called it as often.

        Raises RankGroupError, on every rank, once one of them is gone or has left.
        """
        ...

    def close(self) -> None:
        """Leave the group. May be called twice."""
        ...
