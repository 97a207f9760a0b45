"""Turns the tensors of a weight source into layers on the model's device, in the model's dtype."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from core.model.linear import Linear, NativeLinear, make_linear
from core.model.lora.adapters import Adapters
from core.model.sharding import is_summed
from core.model.tensor_group import GatheredLinear, SummedLinear, own_rows
from core.model.weights.affine_rows import AffineRows
from core.model.weights.weight_source import WeightSource
from core.native.kernels import Kernels


class LayerLoader:
    """Every method raises ModelLoadError for a tensor that is missing or has the wrong shape.

    ``adapters`` get to know every linear layer but the head, and may add to what it gives. Of a rank's part of a model,
    the layers join their results with the other ranks' by themselves.
    """

    def __init__(
        self,
        source: WeightSource,
        device: torch.device,
        dtype: torch.dtype,
        adapters: Adapters | None = None,
        kernels: Kernels | None = None,
        stays_quantized: bool = False,
    ) -> None:
        """``kernels`` make the linear layers, for float32 on the CPU; what they can, of weights that stay quantized."""
        self.source, self.device, self.dtype = source, device, dtype
        self.kernels = kernels
        self._stays_quantized = stays_quantized and kernels is not None
        self.has_quantized = False
        """Whether any weights have stayed so."""
        self._adapters = adapters
        self.num_bytes = 0
        """Of everything loaded so far."""

    def linear(self, out_sizes: Mapping[str, int], in_size: int) -> Linear:
        """One layer of all that ``out_sizes`` names, their outputs side by side; with biases if the file has some."""
        weights = [self._weights(f"{name}.weight", (size, in_size)) for name, size in out_sizes.items()]
        has_bias = any(f"{name}.bias" in self.source for name in out_sizes)
        biases = [self.source.dense(f"{name}.bias", (size,)) for name, size in out_sizes.items() if has_bias]
        group = self.source.group
        if group is None or not any(map(is_summed, out_sizes)):
            return self._adapt(self._make(weights, biases), out_sizes, in_size)
        part = self._adapt(self._make(weights, [] if group.rank else biases), out_sizes, in_size)
        return SummedLinear(part, group)

    def head(self, name: str, vocab_size: int, in_size: int) -> Linear:
        """The logits' layer. Of several ranks each computes its part of the vocabulary, and all get the whole."""
        group, shape = self.source.group, (vocab_size, in_size)
        if group is None:
            return self._make([self._weights(f"{name}.weight", shape)])
        rows, num_missing = own_rows(vocab_size, group)
        parts = [self._weights(f"{name}.weight", shape, rows)]
        parts += [torch.zeros(num_missing, in_size)] * bool(num_missing)
        return GatheredLinear(self._make(parts), group, vocab_size)

    def vector(self, name: str, size: int) -> Tensor:
        placed = self.source.dense(name, (size,)).to(self.device, self.dtype)
        self.num_bytes += placed.nbytes
        return placed

    def _weights(self, name: str, shape: tuple[int, int], rows: range | None = None) -> Tensor | AffineRows:
        affine = self.source.affine(name, shape, rows) if self._stays_quantized else None
        self.has_quantized |= affine is not None
        return self.source.dense(name, shape, rows) if affine is None else affine

    def _adapt(self, layer: Linear, out_sizes: Mapping[str, int], in_size: int) -> Linear:
        return self._adapters.adapt(layer, out_sizes, in_size, self.device, self.dtype) if self._adapters else layer

    def _make(self, weights: Sequence[Tensor | AffineRows], biases: Sequence[Tensor] = ()) -> Linear:
        bias = torch.cat(list(biases)).to(self.device, self.dtype) if biases else None
        self.num_bytes += 0 if bias is None else bias.nbytes
        if self.kernels is not None:
            layer = NativeLinear(self.kernels, weights, bias)
            self.num_bytes += layer.num_bytes
            return layer
        whole = torch.cat([part for part in weights if isinstance(part, Tensor)]).to(self.device, self.dtype)
        self.num_bytes += whole.nbytes
        return make_linear(whole, bias)
