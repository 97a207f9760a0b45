"""What each rank of a tensor-parallel group has of a model, decided by the names of its tensors.

    q, k, v       heads: a range of key-value heads with the query heads that read them. Where there are more ranks than
                  key-value heads, several ranks have the same one, and share its query heads
    gate, up      a range of the feed-forward's columns
    o, down       the inputs that belong to those; what the ranks compute is summed
    all else      whole, on every rank; the embedding too: it is looked up, not computed

Shares are as even as whole heads and columns allow. A family's code sees a smaller architecture and smaller tensors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from core.model.architecture import Architecture
from core.model.lora.peft_folder import LoraPair
from core.model.tensor_group import TensorGroup
from core.model.weights.affine_rows import AffineRows
from core.model.weights.weight_source import RowTable, StoredTensor, WeightSource

_SUMMED = ("o_proj", "down_proj")


def share(total: int, rank: int, size: int) -> range:
    """The part of ``range(total)`` that is ``rank``'s: all parts follow each other, earlier ones may be longer by 1."""
    return range(-(-total * rank // size), -(-total * (rank + 1) // size))


@dataclass(frozen=True)
class Shard:
    """What one rank computes: its ranges of the whole model's heads and feed-forward columns."""

    heads: range
    kv_heads: range
    columns: range

    @classmethod
    def of(cls, architecture: Architecture, rank: int, size: int) -> "Shard":
        """Raises ValueError if there are more ranks than query heads."""
        a = architecture
        if size > a.num_heads:
            raise ValueError(f"tensor_parallel_size must be at most {a.num_heads}, the model's heads, got {size}")
        group_size = a.num_heads // a.num_kv_heads
        columns = share(a.intermediate_size, rank, size)
        if size <= a.num_kv_heads:
            kv_heads = share(a.num_kv_heads, rank, size)
            return cls(range(kv_heads.start * group_size, kv_heads.stop * group_size), kv_heads, columns)
        kv_head = next(head for head in range(a.num_kv_heads) if rank in share(size, head, a.num_kv_heads))
        sharing = share(size, kv_head, a.num_kv_heads)
        part = share(group_size, rank - sharing.start, len(sharing))
        first = kv_head * group_size
        return cls(range(first + part.start, first + part.stop), range(kv_head, kv_head + 1), columns)

    def narrow(self, architecture: Architecture) -> Architecture:
        """That of this rank's part."""
        return replace(
            architecture,
            num_heads=len(self.heads),
            num_kv_heads=len(self.kv_heads),
            intermediate_size=len(self.columns),
        )


def is_summed(name: str) -> bool:
    """Whether the linear ``name`` has only some of its inputs on each rank, so that the results must be summed."""
    return name.rpartition(".")[2] in _SUMMED


class Sharding:
    """Cuts what is a whole model's down to the part of one rank of ``group``.

    Raises ValueError if there are more ranks than query heads.
    """

    def __init__(self, architecture: Architecture, group: TensorGroup) -> None:
        shard = Shard.of(architecture, group.rank, group.size)
        self._architecture = shard.narrow(architecture)
        self._cuts = _cuts(architecture, shard)
        self._group = group

    def cut_source(self, source: WeightSource) -> WeightSource:
        return source.mapped(self._architecture, self._cut_stored, self._group)

    def cut_pair(self, module: str, pair: LoraPair) -> LoraPair:
        """What an adapter adds on this rank; where results are summed, so is what all ranks add."""
        cut = self._cut_of(module)
        if cut is None:
            return pair
        return LoraPair(pair.down, cut.of(pair.up)) if cut.dim == 0 else LoraPair(cut.of(pair.down), pair.up)

    def _cut_stored(self, name: str, stored: StoredTensor) -> StoredTensor:
        module, _, kind = name.rpartition(".")
        cut = self._cut_of(module)
        if cut is None or (cut.dim == 1 and kind == "bias"):
            return stored
        # One of another shape stays whole: that it does not fit is then said where it is taken.
        return _Part(stored, cut) if cut.fits(stored.shape) else stored

    def _cut_of(self, module: str) -> "_Cut | None":
        return self._cuts.get(module.rpartition(".")[2])


@dataclass(frozen=True)
class _Cut:
    """Along ``dim``, where the whole tensor has ``total`` elements, those in ``ranges``."""

    dim: int
    total: int
    ranges: tuple[range, ...]

    def fits(self, shape: tuple[int, ...]) -> bool:
        return shape[self.dim : self.dim + 1] == (self.total,)

    def of(self, tensor: Tensor) -> Tensor:
        """One that does not fit stays whole."""
        if not self.fits(tuple(tensor.shape)):
            return tensor
        return self.join([tensor.narrow(self.dim, part.start, len(part)) for part in self.ranges])

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Those of ``ranges``."""
        return torch.cat(list(parts), self.dim) if len(parts) > 1 else parts[0]


def _cuts(architecture: Architecture, shard: Shard) -> Mapping[str, _Cut]:
    """By the last word of a linear's name."""
    a = architecture
    q, kv = _elements(shard.heads, a.head_size), _elements(shard.kv_heads, a.head_size)
    columns, width = shard.columns, a.intermediate_size
    key = _moved(kv, a.query_size)
    return {
        "q_proj": _Cut(0, a.query_size, (q,)),
        "k_proj": _Cut(0, a.kv_size, (kv,)),
        "v_proj": _Cut(0, a.kv_size, (kv,)),
        "qkv_proj": _Cut(0, a.query_size + 2 * a.kv_size, (q, key, _moved(key, a.kv_size))),
        "gate_proj": _Cut(0, width, (columns,)),
        "up_proj": _Cut(0, width, (columns,)),
        "gate_up_proj": _Cut(0, 2 * width, (columns, _moved(columns, width))),
        "o_proj": _Cut(1, a.query_size, (q,)),
        "down_proj": _Cut(1, width, (columns,)),
    }


def _elements(heads: range, head_size: int) -> range:
    return range(heads.start * head_size, heads.stop * head_size)


def _moved(places: range, by: int) -> range:
    return range(places.start + by, places.stop + by)


@dataclass(frozen=True)
class _Part:
    """Those elements of a stored tensor that a rank has."""

    stored: StoredTensor
    cut: _Cut

    @property
    def shape(self) -> tuple[int, ...]:
        before, after = self.stored.shape[: self.cut.dim], self.stored.shape[self.cut.dim + 1 :]
        return (*before, sum(map(len, self.cut.ranges)), *after)

    def dense(self) -> Tensor:
        return self.cut.join([self.stored.part(self.cut.dim, places) for places in self.cut.ranges])

    def part(self, dim: int, places: range) -> Tensor:
        return self.dense().narrow(dim, places.start, len(places))

    def affine_part(self, dim: int, places: range) -> AffineRows | None:
        parts = [self.stored.affine_part(self.cut.dim, own) for own in self.cut.ranges]
        affine = [part for part in parts if part is not None]
        return AffineRows.join(affine, self.cut.dim).part(dim, places) if len(affine) == len(parts) else None

    def row_table(self) -> RowTable:
        raise NotImplementedError("embeddings are not cut")
