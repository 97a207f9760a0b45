"""Random quantized matrices, and what they give with activations rounded to bytes, in float64."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.model.weights.affine_rows import AffineRows
from core.native.kernels import Floats, Kernels, Linear, Matrix

BLOCK = 32
EPSILON = 2.0**-24


@dataclass(frozen=True)
class Format:
    """``zero_point``: every offset is so many times its scale; ``has_half_scales``: a float16 is enough for each."""

    bits: int
    group: int
    zero_point: int | None = None
    has_half_scales: bool = True

    def __str__(self) -> str:
        zero = "offsets" if self.zero_point is None else f"zero{self.zero_point}"
        return f"{self.bits}bits-group{self.group}-{zero}-{'half' if self.has_half_scales else 'float'}"

    def random(self, num_rows: int, num_columns: int, seed: int = 0, *, scale: float = 0.01) -> AffineRows:
        rng = np.random.default_rng(seed)
        quants = rng.integers(0, 2**self.bits, (num_rows, num_columns), dtype=np.uint8)
        scales, offsets = rng.standard_normal((2, num_rows, num_columns // self.group)).astype(np.float32) * scale
        if self.has_half_scales:
            scales, offsets = (values.astype(np.float16).astype(np.float32) for values in (scales, offsets))
        if self.zero_point is not None:
            offsets = scales * np.float32(-self.zero_point)
        return AffineRows(quants, scales, offsets, self.group, self.bits)


FORMATS = [
    Format(bits, group, zero_point, has_half_scales)
    for bits, group, zero_points in (
        (4, 32, (None, 8)),
        (8, 32, (None, 16, 128)),
        (8, 16, (None, 32)),
        (4, 16, (None, 4)),
    )
    for zero_point in zero_points
    for has_half_scales in (True, False)
]


def random_activations(num_rows: int, num_columns: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).standard_normal((num_rows, num_columns)).astype(np.float32)


def rounded(activations: Floats) -> NDArray[np.float64]:
    """As llama.cpp has them (ggml-quants.c, quantize_row_q8_1): of each 32, multiples of the largest / 127."""
    blocks = activations.reshape(len(activations), -1, BLOCK)
    scales = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    inverses = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
    return (np.rint(blocks * inverses).astype(np.float64) * scales).reshape(activations.shape)


def expected_product(activations: Floats, matrix: AffineRows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The product, and how far sums in float32 may be from it, whatever their order: both [rows, matrix rows]."""
    inputs = rounded(activations)
    quants, scales, offsets = (_by_column(values, matrix) for values in (matrix.quants, matrix.scales, matrix.offsets))
    size = np.abs(inputs) @ (np.abs(scales * quants) + np.abs(offsets)).T
    num_roundings = 2 * matrix.scales.shape[1] + 4
    return inputs @ (scales * quants + offsets).T, num_roundings * EPSILON * size


def _by_column(values: NDArray[Any], matrix: AffineRows) -> NDArray[np.float64]:
    return values.repeat(matrix.quants.shape[1] // values.shape[1], axis=1).astype(np.float64)


def pack(kernels: Kernels, matrix: AffineRows | Floats) -> Matrix:
    """The kernels' own matrix of one that is quantized or dense."""
    if isinstance(matrix, AffineRows):
        return kernels.pack_affine(matrix.quants, matrix.scales, matrix.offsets, matrix.group, matrix.bits)
    return kernels.pack_dense(matrix)


def make_linear(kernels: Kernels, *matrices: AffineRows | Floats, bias: Floats | None = None) -> Linear:
    return kernels.Linear([pack(kernels, matrix) for matrix in matrices], bias)


def multiply(linear: Linear, activations: Floats) -> Floats:
    """Into memory that is full of NaN: every output must be written."""
    outputs = np.full((len(activations), linear.num_outputs), np.nan, np.float32)
    linear.multiply(activations, outputs)
    return outputs


def product(
    kernels: Kernels, activations: Floats, *matrices: AffineRows | Floats, bias: Floats | None = None
) -> Floats:
    return multiply(make_linear(kernels, *matrices, bias=bias), activations)
