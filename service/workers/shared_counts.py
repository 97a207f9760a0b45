"""What each process of a gateway holds of what is bounded for all together, in memory that they share.

    row r, column c   what process r holds of thing c: written by process r alone, read by all

No lock: a count is one aligned word. Two processes that look at the same moment may both take the last room: then the
bound is passed by what one request has, for each process beyond the first.
"""

import mmap
import os
from dataclasses import dataclass

_WORD_BYTES = 8


class SharedCounts:
    """``num_rows`` processes, of which this one is ``row``. Every count is 0 at first."""

    def __init__(self, fd: int, num_rows: int, num_columns: int, row: int = 0) -> None:
        """``fd``: of ``new_memory``, inherited or made here; it may be closed afterwards."""
        self._num_columns = num_columns
        self._row = row
        self._rows = range(num_rows)
        self._memory = memoryview(mmap.mmap(fd, num_rows * num_columns * _WORD_BYTES)).cast("q")

    def column(self, index: int) -> "Column":
        """One thing that is bounded."""
        return Column(self, index)

    def clear(self, row: int) -> None:
        """A process is gone, with all that it held."""
        for column in range(self._num_columns):
            self._memory[self._place(row, column)] = 0

    def tell(self, column: int, count: int) -> None:
        """This process holds so much."""
        self._memory[self._place(self._row, column)] = count

    def held_by_others(self, column: int) -> int:
        """What the other processes hold together."""
        return sum(self._memory[self._place(row, column)] for row in self._rows if row != self._row)

    def _place(self, row: int, column: int) -> int:
        return row * self._num_columns + column


@dataclass(frozen=True)
class Column:
    """As ``service.admission.budget.Elsewhere``."""

    counts: SharedCounts
    index: int

    def tell(self, count: int) -> None:
        """This process holds so much."""
        self.counts.tell(self.index, count)

    @property
    def held(self) -> int:
        """What the other processes hold together."""
        return self.counts.held_by_others(self.index)


def new_memory(num_rows: int, num_columns: int) -> int:
    """A file descriptor of memory for so many counts; it lives as long as anybody has it."""
    fd = os.memfd_create("sluicegate-counts")
    os.ftruncate(fd, num_rows * num_columns * _WORD_BYTES)
    return fd
