"""The decoder of all families; what sets them apart is in ``families`` and in the architecture's numbers."""

import torch
from torch import Tensor

from core.model.attention.native_attention import NativeAttention
from core.model.decoder.layer import load_layer
from core.model.decoder.layer_loader import LayerLoader
from core.model.decoder.native_decoder import NativeDecoder
from core.model.decoder.norm import Norm
from core.model.decoder.rope import Ropes
from core.model.families import FAMILIES
from core.model.model import StepAttention
from core.model.weights.load_progress import logged_layers
from core.model.weights.weight_source import WeightSource

_EMBEDDING = "model.embed_tokens"
_HEAD = "lm_head"
_ROPE_FACTORS = "rope_freqs.weight"


class Decoder:
    """RMS norms, rotary positions, grouped-query attention and gated feed-forward.

    Where the kernels can do all of its layers, they do it in one call; else in few, large operations.
    """

    def __init__(self, loader: LayerLoader) -> None:
        source = loader.source
        self.architecture = a = source.architecture
        self.device, self.dtype = loader.device, loader.dtype
        self._embedding = source.row_table(f"{_EMBEDDING}.weight", (a.vocab_size, a.hidden_size))
        scale = a.hidden_size**0.5 if FAMILIES[a.family].scales_embedding else None
        # Of the dtype, as transformers has it: in bfloat16 the root of 640 is 25.25.
        self._embedding_scale = None if scale is None else torch.tensor(scale, device=self.device, dtype=self.dtype)
        self._layers = [load_layer(index, a, loader) for index in logged_layers(a.num_layers)]
        self._norm = Norm("model.norm", a.hidden_size, a.norm_eps, loader)
        head = _HEAD if f"{_HEAD}.weight" in source else _EMBEDDING
        self._head = loader.head(head, a.vocab_size, a.hidden_size)
        self._ropes = Ropes(a.ropes, a.head_size, _rope_factors(source), self.device)
        source.check_all_taken()
        self.num_weight_bytes = loader.num_bytes
        self._native = NativeDecoder.make(loader.kernels, a, self._layers, self._norm, self._ropes)
        self.native_kernels = loader.kernels if self._native else None
        self.kv_dtype = torch.float16 if loader.has_quantized else loader.dtype

    def embed(self, token_ids: Tensor) -> Tensor:
        rows = self._embedding(token_ids.cpu()).to(self.device, self.dtype)
        return rows if self._embedding_scale is None else rows * self._embedding_scale

    def forward(self, inputs: Tensor, positions: Tensor, attention: StepAttention) -> Tensor:
        if isinstance(attention, NativeAttention):
            assert self._native is not None, "whose attention it is"
            return self._native.forward(inputs, attention)
        hidden = inputs
        for layer, rotation in zip(self._layers, self._ropes.at(positions, self.dtype), strict=True):
            hidden = layer(hidden, rotation, attention)
        return self._norm(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        logits, softcap = self._head(hidden), self.architecture.logits_softcap
        return logits if softcap is None else logits.div_(softcap).tanh_().mul_(softcap)


def _rope_factors(source: WeightSource) -> Tensor | None:
    """A GGUF holds Llama 3.1's scaling as one divisor per frequency."""
    if _ROPE_FACTORS not in source:
        return None
    return source.dense(_ROPE_FACTORS, (source.architecture.head_size // 2,))
