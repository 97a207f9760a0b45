"""A linear layer to whose outputs adapters add, each to the rows that run with it."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from core.model.linear import Linear
from core.model.lora.peft_folder import LoraPair

AdapterWeights = Mapping["AdaptedLinear", "LayerWeights"]
"""One adapter: what it adds where. Layers that it leaves alone are absent."""


class LayerWeights(NamedTuple):
    """``rows @ down @ up`` is added: ``down`` [in_size, ranks], ``up`` [ranks, out_size], the parts' ranks together."""

    down: Tensor
    up: Tensor


class AdaptedRows(NamedTuple):
    """Consecutive rows of a step that run with one adapter."""

    rows: slice
    weights: AdapterWeights


class AdaptedLinear:
    """``parts``: names of what the layer holds side by side, with their sizes. ``step``: the list of the running step.

    An adapter's rows are multiplied by themselves, two small products for each layer: no row meets an adapter that is
    not its own, and none is padded to another's rank.
    """

    def __init__(self, base: Linear, parts: Mapping[str, int], in_size: int, step: Sequence[AdaptedRows]) -> None:
        self._base = base
        self._in_size = in_size
        self._slices = {
            name: slice(*bounds)
            for name, bounds in zip(parts, pairwise(accumulate(parts.values(), initial=0)), strict=True)
        }
        self._out_size = sum(parts.values())
        self._step = step

    def __call__(self, rows: Tensor) -> Tensor:
        result = self._base(rows)
        if self._step:
            self._add(rows, result)
        return result

    def shape_of(self, part: str) -> tuple[int, int]:
        """[out_size, in_size] of one of the parts."""
        bounds = self._slices[part]
        return bounds.stop - bounds.start, self._in_size

    def join(self, pairs: Mapping[str, LoraPair], device: torch.device, dtype: torch.dtype) -> LayerWeights:
        """``pairs`` of some of the parts as one: a part's columns of ``up`` are zero in the ranks of the others."""
        down = torch.cat([pair.down for pair in pairs.values()])
        up = torch.zeros(len(down), self._out_size)
        first = 0
        for part, pair in pairs.items():
            rank = len(pair.down)
            up[first : first + rank, self._slices[part]] = pair.up.T
            first += rank
        return LayerWeights(down.T.contiguous().to(device, dtype), up.to(device, dtype))

    def _add(self, rows: Tensor, result: Tensor) -> None:
        for adapted in self._step:
            if (weights := adapted.weights.get(self)) is not None:
                result[adapted.rows].addmm_(rows[adapted.rows] @ weights.down, weights.up)
