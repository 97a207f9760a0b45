"""One layer of a decoder: attention, then feed-forward, each added to what it was given."""

from dataclasses import dataclass

from torch import Tensor

from core.model.architecture import Architecture
from core.model.decoder.feed_forward import FeedForward
from core.model.decoder.layer_loader import LayerLoader
from core.model.decoder.norm import Norm
from core.model.decoder.rope import Rotation
from core.model.decoder.self_attention import SelfAttention
from core.model.families import FAMILIES
from core.model.model import Attention


@dataclass(frozen=True)
class DecoderLayer:
    """Maps hidden states [tokens, hidden_size] to the next layer's.

    Gemma's have norms of what attention and feed-forward give, too.
    """

    attention_norm: Norm
    attention: SelfAttention
    attended_norm: Norm | None
    feed_forward_norm: Norm
    feed_forward: FeedForward
    fed_norm: Norm | None

    def __call__(self, hidden: Tensor, rotation: Rotation, attention: Attention) -> Tensor:
        attended = self.attention(self.attention_norm(hidden), rotation, attention)
        hidden = hidden + (self.attended_norm(attended) if self.attended_norm else attended)
        fed = self.feed_forward(self.feed_forward_norm(hidden))
        return hidden + (self.fed_norm(fed) if self.fed_norm else fed)


def load_layer(index: int, architecture: Architecture, loader: LayerLoader) -> DecoderLayer:
    """Of the kind that the family has, by the tensors' Hugging Face names. Raises ModelLoadError."""
    a, prefix = architecture, f"model.layers.{index}"
    has_output_norms = FAMILIES[a.family].has_output_norms

    def norm(name: str) -> Norm:
        return Norm(f"{prefix}.{name}", a.hidden_size, a.norm_eps, loader)

    return DecoderLayer(
        attention_norm=norm("input_layernorm"),
        attention=SelfAttention(index, f"{prefix}.self_attn", a, loader),
        attended_norm=norm("post_attention_layernorm") if has_output_norms else None,
        feed_forward_norm=norm("pre_feedforward_layernorm" if has_output_norms else "post_attention_layernorm"),
        feed_forward=FeedForward(f"{prefix}.mlp", a, loader),
        fed_norm=norm("post_feedforward_layernorm") if has_output_norms else None,
    )
