"""A matrix of small integers with a scale and an offset for every few columns: weights that stay quantized."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK = 32
"""Columns that have a common scale in what kernels multiply the weights with: never less than a group."""


@dataclass(frozen=True)
class AffineRows:
    """``weight[n, k] = scales[n, k // group] * quants[n, k] + offsets[n, k // group]``.

    ``quants`` uint8 [rows, columns], below ``2 ** bits``; ``scales`` and ``offsets`` float32 [rows, columns / group].
    ``group`` is 16 or 32, ``bits`` 4 or 8.
    """

    quants: NDArray[np.uint8]
    scales: NDArray[np.float32]
    offsets: NDArray[np.float32]
    group: int
    bits: int

    def dense(self) -> NDArray[np.float32]:
        """The weights, float32 [rows, columns]."""
        groups = self.quants.reshape(*self.scales.shape, self.group)
        weights = self.scales[..., None] * groups + self.offsets[..., None]
        return weights.reshape(self.quants.shape)

    def part(self, dim: int, places: range) -> "AffineRows | None":
        """What it has at ``places`` along ``dim``, of columns a copy; None if they cut a block of 32 columns."""
        if dim == 0:
            return self._with(*(values[places.start : places.stop] for values in self._arrays))
        if places.start % _BLOCK or places.stop % _BLOCK:
            return None
        widths = (1, self.group, self.group)
        cuts = (slice(places.start // width, places.stop // width) for width in widths)
        return self._with(*(values[:, cut].copy() for values, cut in zip(self._arrays, cuts, strict=True)))

    @staticmethod
    def join(parts: Sequence["AffineRows"], dim: int) -> "AffineRows":
        """Of parts of one tensor."""
        arrays = zip(*(part._arrays for part in parts), strict=True)
        return parts[0]._with(*(np.concatenate(values, dim) for values in arrays)) if len(parts) > 1 else parts[0]

    @property
    def _arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        return self.quants, self.scales, self.offsets

    def _with(self, quants: NDArray[Any], scales: NDArray[Any], offsets: NDArray[Any]) -> "AffineRows":
        return replace(self, quants=quants, scales=scales, offsets=offsets)
