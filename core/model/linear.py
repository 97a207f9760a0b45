"""Linear layers: the seam where quantized and device-specific kernels go."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from core.model.weights.affine_rows import AffineRows
from core.native.kernels import Kernels, Matrix

QUANTIZATIONS = ("auto", "none")
"""``none``: maths in the model's dtype on dequantized weights; ``auto``: weights stay as the file has them quantized,
where there are kernels for that, and are multiplied with activations of 8 bits."""


class Linear(Protocol):
    """Maps [rows, in_size] to [rows, out_size]."""

    def __call__(self, rows: Tensor) -> Tensor: ...


class DenseLinear:
    """torch's own: for every device and dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, rows: Tensor) -> Tensor:
        return functional.linear(rows, self._weight, self._bias)


class PackedLinear:
    """float32 on the CPU with the weight in oneDNN's own layout, which alone is kept.

    Over all of SmolLM2's layers, in milliseconds on two AVX-512 (AVX2) threads, ``F.linear`` beside it:
    1 row 27 (28) for 40, 8 rows 27 (37) for 48, 32 rows 46 (56) for 73, 512 rows 506 (553) for 664.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        self._bias = bias

    def __call__(self, rows: Tensor) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return result


class NativeLinear:
    """By our own kernels: float32 on the CPU, weights float32 or quantized. ``weights`` are stacked by output."""

    def __init__(self, kernels: Kernels, weights: Sequence[Tensor | AffineRows], bias: Tensor | None) -> None:
        parts = [_pack(kernels, part) for part in weights]
        self.native = kernels.Linear(parts, None if bias is None else bias.numpy())
        self.num_bytes = sum(part.num_bytes for part in parts)

    def __call__(self, rows: Tensor) -> Tensor:
        outputs = torch.empty(len(rows), self.native.num_outputs)
        with torch.profiler.record_function("native_linear"):
            self.native.multiply(rows.contiguous().numpy(), outputs.numpy())
        return outputs


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The fastest layer of torch's for the device and dtype of ``weight`` [out_size, in_size]."""
    on_cpu = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return PackedLinear(weight, bias) if on_cpu and weight.dtype == torch.float32 else DenseLinear(weight, bias)


def _pack(kernels: Kernels, weights: Tensor | AffineRows) -> Matrix:
    if isinstance(weights, Tensor):
        return kernels.pack_dense(weights.contiguous().numpy())
    return kernels.pack_affine(weights.quants, weights.scales, weights.offsets, weights.group, weights.bits)
