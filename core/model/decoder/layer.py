"""One layer of a decoder: attention, then feed-forward, each added to what it was given."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from core.model.architecture import Architecture
from core.model.decoder.feed_forward import FeedForward
from core.model.decoder.layer_loader import LayerLoader
from core.model.decoder.norm import Norm
from core.model.decoder.rope import Rotation
from core.model.decoder.self_attention import SelfAttention
from core.model.families import FAMILIES
from core.model.model import Attention


class DecoderLayer(Protocol):
    """Maps hidden states [tokens, hidden_size] to the next layer's."""

    def __call__(self, hidden: Tensor, rotation: Rotation, attention: Attention) -> Tensor: ...


@dataclass(frozen=True)
class _PreNormLayer:
    attention_norm: Norm
    attention: SelfAttention
    feed_forward_norm: Norm
    feed_forward: FeedForward

    def __call__(self, hidden: Tensor, rotation: Rotation, attention: Attention) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden), rotation, attention)
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))


@dataclass(frozen=True)
class _SandwichLayer:
    """Gemma's: what attention and feed-forward give is normalized too."""

    attention_norm: Norm
    attention: SelfAttention
    attended_norm: Norm
    feed_forward_norm: Norm
    feed_forward: FeedForward
    fed_norm: Norm

    def __call__(self, hidden: Tensor, rotation: Rotation, attention: Attention) -> Tensor:
        hidden = hidden + self.attended_norm(self.attention(self.attention_norm(hidden), rotation, attention))
        return hidden + self.fed_norm(self.feed_forward(self.feed_forward_norm(hidden)))


def load_layer(index: int, architecture: Architecture, loader: LayerLoader) -> DecoderLayer:
    """Of the kind that the family has, by the tensors' Hugging Face names. Raises ModelLoadError."""
    a, prefix = architecture, f"model.layers.{index}"

    def norm(name: str) -> Norm:
        return Norm(f"{prefix}.{name}", a.hidden_size, a.norm_eps, loader)

    attention = SelfAttention(index, f"{prefix}.self_attn", a, loader)
    feed_forward = FeedForward(f"{prefix}.mlp", a, loader)
    if not FAMILIES[a.family].has_output_norms:
        return _PreNormLayer(norm("input_layernorm"), attention, norm("post_attention_layernorm"), feed_forward)
    return _SandwichLayer(
        norm("input_layernorm"),
        attention,
        norm("post_attention_layernorm"),
        norm("pre_feedforward_layernorm"),
        feed_forward,
        norm("post_feedforward_layernorm"),
    )
