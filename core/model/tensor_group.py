"""The ranks that share one model, as its layers see them."""

from typing import Protocol

from torch import Tensor

from core.model.linear import Linear


class TensorGroup(Protocol):
    """One rank's end of the group. Every rank makes the same calls in the same order."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def all_reduce(self, tensor: Tensor) -> None:
        """Put the sum of all ranks' tensors in place of each. Raises RuntimeError once a rank is gone."""
        ...

    def all_gather(self, tensor: Tensor) -> Tensor:
        """[size, *shape]: the same bits on every rank. Raises RuntimeError once a rank is gone."""
        ...


class SummedLinear:
    """Each rank has some of the inputs: what they compute is summed. The bias is rank 0's alone."""

    def __init__(self, part: Linear, group: TensorGroup) -> None:
        self._part, self._group = part, group

    def __call__(self, rows: Tensor) -> Tensor:
        result = self._part(rows)
        self._group.all_reduce(result)
        return result


class GatheredLinear:
    """Each rank has some of the ``out_size`` outputs, and gets those of all."""

    def __init__(self, part: Linear, group: TensorGroup, out_size: int) -> None:
        self._part, self._group, self._out_size = part, group, out_size

    def __call__(self, rows: Tensor) -> Tensor:
        parts = self._group.all_gather(self._part(rows))
        return parts.transpose(0, 1).reshape(len(rows), -1)[:, : self._out_size]


def own_rows(num_rows: int, group: TensorGroup) -> tuple[range, int]:
    """The rank's part of so many rows, and how many zeros make it as long as every rank's is."""
    length = -(-num_rows // group.size)
    rows = range(min(group.rank * length, num_rows), min((group.rank + 1) * length, num_rows))
    return rows, length - len(rows)
