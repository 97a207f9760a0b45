"""The gated feed-forward part of a layer."""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor
from torch.nn import functional

from core.model.architecture import Architecture
from core.model.decoder.layer_loader import LayerLoader
from core.model.families import FAMILIES

_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
}


class FeedForward:
    """[tokens, hidden_size] from [tokens, hidden_size]; ``prefix`` names the layer's tensors."""

    def __init__(self, prefix: str, architecture: Architecture, loader: LayerLoader) -> None:
        a, family = architecture, FAMILIES[architecture.family]
        sizes = {"gate_proj": a.intermediate_size, "up_proj": a.intermediate_size}
        if family.has_fused_projections:
            sizes = {"gate_up_proj": 2 * a.intermediate_size}
        self.gate_up = loader.linear({f"{prefix}.{name}": size for name, size in sizes.items()}, a.hidden_size)
        self.down = loader.linear({f"{prefix}.down_proj": a.hidden_size}, a.intermediate_size)
        self._activate = _ACTIVATIONS[family.activation]

    def __call__(self, hidden: Tensor) -> Tensor:
        gate, up = self.gate_up(hidden).chunk(2, -1)
        return self.down(self._activate(gate) * up)
