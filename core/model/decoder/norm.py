"""RMS norms."""

import torch
from torch import Tensor
from torch.nn import functional

from core.model.decoder.layer_loader import LayerLoader


class Norm:
    """Of hidden states [tokens, ``size``]."""

    def __init__(self, name: str, size: int, eps: float, loader: LayerLoader) -> None:
        self.weight = loader.vector(f"{name}.weight", size)
        self._eps = eps

    def __call__(self, hidden: Tensor) -> Tensor:
        return functional.rms_norm(hidden, self.weight.shape, self.weight, self._eps)


class HeadNorm:
    """Of single heads [tokens, heads, head_size]: ``weights`` [head_size] by name, each for so many heads in a row."""

    def __init__(self, num_heads: dict[str, int], head_size: int, eps: float, loader: LayerLoader) -> None:
        weights = [loader.vector(f"{name}.weight", head_size).expand(count, -1) for name, count in num_heads.items()]
        self.weight = torch.cat(weights)
        self._eps = eps

    def __call__(self, heads: Tensor) -> Tensor:
        return functional.rms_norm(heads, heads.shape[-1:], None, self._eps) * self.weight
