"""The ranks that share one model, as its layers see them."""

from typing import Protocol

from torch import Tensor
from torch.nn import functional

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


def own_rows(weight: Tensor, group: TensorGroup) -> Tensor:
    """The rank's part of ``weight`` [rows, columns], equally long on every rank: the last ones end in zeros."""
    num_rows = -(-len(weight) // group.size)
    part = weight[group.rank * num_rows : (group.rank + 1) * num_rows]
    return functional.pad(part, (0, 0, 0, num_rows - len(part)))
