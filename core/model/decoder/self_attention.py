"""The attention part of a layer: from hidden states to heads, over the KV cache, and back."""

from torch import Tensor

from core.model.architecture import Architecture
from core.model.decoder.layer_loader import LayerLoader
from core.model.decoder.norm import HeadNorm
from core.model.decoder.rope import Rotation
from core.model.families import FAMILIES
from core.model.model import Attention, AttentionRule


class SelfAttention:
    """[tokens, hidden_size] from [tokens, hidden_size]; ``prefix`` names the layer's tensors."""

    def __init__(self, index: int, prefix: str, architecture: Architecture, loader: LayerLoader) -> None:
        a, family = architecture, FAMILIES[architecture.family]
        self._index, self._architecture = index, a
        self.rule = AttentionRule(a.attention_scale, a.windows[index], a.attention_softcap)
        sizes = {"q_proj": a.query_size, "k_proj": a.kv_size, "v_proj": a.kv_size}
        if family.has_fused_projections:
            sizes = {"qkv_proj": sum(sizes.values())}
        self.qkv = loader.linear({f"{prefix}.{name}": size for name, size in sizes.items()}, a.hidden_size)
        self.output = loader.linear({f"{prefix}.o_proj": a.hidden_size}, a.query_size)
        norms = {f"{prefix}.q_norm": a.num_heads, f"{prefix}.k_norm": a.num_kv_heads}
        self.head_norm = HeadNorm(norms, a.head_size, a.norm_eps, loader) if family.has_head_norms else None

    def __call__(self, hidden: Tensor, rotation: Rotation, attention: Attention) -> Tensor:
        a = self._architecture
        heads = self.qkv(hidden).view(-1, a.num_heads + 2 * a.num_kv_heads, a.head_size)
        turned, value = heads[:, : -a.num_kv_heads], heads[:, -a.num_kv_heads :]
        if self.head_norm is not None:
            turned = self.head_norm(turned)
        turned = rotation.apply(turned)
        query, key = turned[:, : a.num_heads], turned[:, a.num_heads :]
        return self.output(attention.attend(self._index, query, key, value, self.rule))
