"""What each rank of a tensor-parallel group has of a model, decided by the names of its tensors.

    q, k, v       heads: a range of key-value heads with the query heads that read them. Where there are more ranks than
                  key-value heads, several ranks have the same one, and share its query heads
    gate, up      a range of the feed-forward's columns
    o, down       the inputs that belong to those; what the ranks compute is summed
    all else      whole, on every rank; the embedding too: it is looked up, not computed

Shares are as even as whole heads and columns allow. A family's code sees a smaller architecture and smaller tensors.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor

from core.model.architecture import Architecture
from core.model.tensor_group import TensorGroup
from core.model.weight_source import RowTable, StoredTensor, WeightSource

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


def shard_source(source: WeightSource, group: TensorGroup) -> WeightSource:
    """The part of ``source`` that the rank of ``group`` has. Raises ValueError for more ranks than query heads."""
    shard = Shard.of(source.architecture, group.rank, group.size)
    cut = functools.partial(_cut, _cuts(source.architecture, shard))
    return source.mapped(shard.narrow(source.architecture), cut, group)


@dataclass(frozen=True)
class _Cut:
    """Along ``dim``, where the whole tensor has ``total`` elements, those in ``ranges``."""

    dim: int
    total: int
    ranges: tuple[range, ...]


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


def _cut(cuts: Mapping[str, _Cut], name: str, stored: StoredTensor) -> StoredTensor:
    module, _, kind = name.rpartition(".")
    cut = cuts.get(module.rpartition(".")[2])
    if cut is None or (cut.dim == 1 and kind == "bias"):
        return stored
    # One of another shape stays whole: that it does not fit is then said where it is taken.
    return _Part(stored, cut) if stored.shape[cut.dim : cut.dim + 1] == (cut.total,) else stored


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
        places = torch.tensor(list(chain.from_iterable(self.cut.ranges)))
        return self.stored.dense().index_select(self.cut.dim, places)

    def row_table(self) -> RowTable:
        raise NotImplementedError("embeddings are not cut")
