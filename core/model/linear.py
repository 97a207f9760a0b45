"""Linear layers: the seam where quantized and device-specific kernels go."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

QUANTIZATIONS = ("auto", "none")
"""``none`` is the reference: maths in the model's dtype on dequantized weights; ``auto`` means the same for now."""


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


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The fastest layer for the device and dtype of ``weight`` [out_size, in_size]."""
    on_cpu = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return PackedLinear(weight, bias) if on_cpu and weight.dtype == torch.float32 else DenseLinear(weight, bias)
