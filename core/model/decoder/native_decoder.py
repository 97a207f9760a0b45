"""A decoder's layers as one call of the kernels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from core.model.architecture import Architecture
from core.model.attention.native_attention import LANES, NativeAttention
from core.model.decoder.layer import DecoderLayer
from core.model.decoder.norm import HeadNorm, Norm
from core.model.decoder.rope import Ropes
from core.model.families import FAMILIES
from core.model.linear import Linear, NativeLinear
from core.native import kernels as native
from core.native.kernels import Kernels


class NativeDecoder:
    """The layers and the last norm of a decoder, of which every linear is native."""

    def __init__(
        self, kernels: Kernels, architecture: Architecture, layers: Sequence[DecoderLayer], norm: Norm, ropes: Ropes
    ) -> None:
        a = architecture
        self._decoder = kernels.Decoder(
            hidden_size=a.hidden_size,
            intermediate_size=a.intermediate_size,
            num_heads=a.num_heads,
            num_kv_heads=a.num_kv_heads,
            head_size=a.head_size,
            norm_eps=a.norm_eps,
            uses_gelu=FAMILIES[a.family].activation != "silu",
            rotations=[(frequencies.numpy(), scale) for frequencies, scale in ropes.different],
            layers=[_make_layer(kernels, layer, place) for layer, place in zip(layers, ropes.places, strict=True)],
            norm=norm.weight.numpy(),
        )

    @classmethod
    def make(
        cls,
        kernels: Kernels | None,
        architecture: Architecture,
        layers: Sequence[DecoderLayer],
        norm: Norm,
        ropes: Ropes,
    ) -> "NativeDecoder | None":
        """None where a layer is not the kernels' alone, or has sizes that are not whole registers."""
        a = architecture
        sizes = (a.hidden_size, a.intermediate_size, a.head_size // 2)
        is_native = all(isinstance(linear, NativeLinear) for layer in layers for linear in _linears(layer).values())
        if kernels is None or not is_native or any(size % LANES for size in sizes):
            return None
        return cls(kernels, architecture, layers, norm, ropes)

    def forward(self, inputs: Tensor, attention: NativeAttention) -> Tensor:
        """``inputs`` [tokens, hidden_size] become normalized hidden states, in their place."""
        with torch.profiler.record_function("native_decoder"):
            self._decoder.forward(inputs.numpy(), attention.spans, attention.tables, attention.cache)
        return inputs


def _linears(layer: DecoderLayer) -> dict[str, Linear]:
    attention, feed_forward = layer.attention, layer.feed_forward
    return {
        "qkv": attention.qkv,
        "output": attention.output,
        "gate_up": feed_forward.gate_up,
        "down": feed_forward.down,
    }


def _make_layer(kernels: Kernels, layer: DecoderLayer, rotation: int) -> native.Layer:
    norms: dict[str, Norm | HeadNorm | None] = {
        "attention_norm": layer.attention_norm,
        "head_norm": layer.attention.head_norm,
        "attended_norm": layer.attended_norm,
        "feed_forward_norm": layer.feed_forward_norm,
        "fed_norm": layer.fed_norm,
    }
    rule = layer.attention.rule
    return kernels.Layer(
        **{name: None if norm is None else norm.weight.numpy() for name, norm in norms.items()},
        **{name: linear.native for name, linear in _linears(layer).items() if isinstance(linear, NativeLinear)},
        scale=rule.scale,
        softcap=rule.softcap or 0.0,
        window=rule.window or 0,
        rotation=rotation,
    )
