"""The Llama family: Llama and, with biases in q, k and v, Qwen2."""

from torch import Tensor
from torch.nn import functional

from core.model.architecture import Architecture
from core.model.layer_loader import LayerLoader
from core.model.load_progress import logged_layers
from core.model.model import Attention, AttentionRule
from core.model.rope import Rotation, rope_frequencies
from core.model.weight_source import WeightSource

_EMBEDDING = "model.embed_tokens"
_HEAD = "lm_head"
_ROPE_FACTORS = "rope_freqs.weight"


class Llama:
    """Decoder with RMS norm, rotary positions, grouped-query attention and SwiGLU.

    Few, large operations: at one token a step the linears take 25 ms, so every call beside them counts.
    """

    def __init__(self, loader: LayerLoader) -> None:
        source = loader.source
        self.architecture = a = source.architecture
        self.device, self.dtype = loader.device, loader.dtype
        self._embedding = source.row_table(f"{_EMBEDDING}.weight", (a.vocab_size, a.hidden_size))
        self._layers = [_Layer(index, a, loader) for index in logged_layers(a.num_layers)]
        self._norm = _Norm("model.norm", a, loader)
        head = _HEAD if f"{_HEAD}.weight" in source else _EMBEDDING
        self._head = loader.head(head, a.vocab_size, a.hidden_size)
        self._frequencies = _load_frequencies(source).to(self.device)
        source.check_all_taken()
        self.num_weight_bytes = loader.num_bytes

    def embed(self, token_ids: Tensor) -> Tensor:
        return self._embedding(token_ids.cpu()).to(self.device, self.dtype)

    def forward(self, inputs: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        hidden = inputs
        rotation = Rotation.of(positions, self._frequencies, self.dtype)
        for layer in self._layers:
            hidden = layer.forward(hidden, rotation, attention)
        return self._norm(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._head(hidden)


def _load_frequencies(source: WeightSource) -> Tensor:
    """``rope_freqs.weight`` in a GGUF holds Llama 3.1's scaling as one divisor per frequency."""
    head_size = source.architecture.head_size
    factors = source.dense(_ROPE_FACTORS, (head_size // 2,)) if _ROPE_FACTORS in source else None
    return rope_frequencies(source.architecture.rope, head_size, factors)


class _Norm:
    def __init__(self, name: str, architecture: Architecture, loader: LayerLoader) -> None:
        self._weight = loader.vector(f"{name}.weight", architecture.hidden_size)
        self._eps = architecture.norm_eps

    def __call__(self, hidden: Tensor) -> Tensor:
        return functional.rms_norm(hidden, self._weight.shape, self._weight, self._eps)


class _Layer:
    def __init__(self, index: int, architecture: Architecture, loader: LayerLoader) -> None:
        self._index = index
        self._architecture = a = architecture
        self._rule = AttentionRule(a.head_size**-0.5, a.windows[index])
        prefix = f"model.layers.{index}"
        qkv = {"q_proj": a.query_size, "k_proj": a.kv_size, "v_proj": a.kv_size}
        gate_up = dict.fromkeys(("gate_proj", "up_proj"), a.intermediate_size)
        self._input_norm = _Norm(f"{prefix}.input_layernorm", a, loader)
        self._mlp_norm = _Norm(f"{prefix}.post_attention_layernorm", a, loader)
        self._qkv = loader.linear(_under(f"{prefix}.self_attn", qkv), a.hidden_size)
        self._output = loader.linear({f"{prefix}.self_attn.o_proj": a.hidden_size}, a.query_size)
        self._gate_up = loader.linear(_under(f"{prefix}.mlp", gate_up), a.hidden_size)
        self._down = loader.linear({f"{prefix}.mlp.down_proj": a.hidden_size}, a.intermediate_size)

    def forward(self, hidden: Tensor, rotation: Rotation, attention: Attention) -> Tensor:
        hidden = hidden + self._attend(self._input_norm(hidden), rotation, attention)
        return hidden + self._feed_forward(self._mlp_norm(hidden))

    def _attend(self, hidden: Tensor, rotation: Rotation, attention: Attention) -> Tensor:
        a = self._architecture
        heads = self._qkv(hidden).view(-1, a.num_heads + 2 * a.num_kv_heads, a.head_size)
        rotated = rotation.apply(heads[:, : -a.num_kv_heads])
        query, key = rotated[:, : a.num_heads], rotated[:, a.num_heads :]
        value = heads[:, -a.num_kv_heads :]
        return self._output(attention.attend(self._index, query, key, value, self._rule))

    def _feed_forward(self, hidden: Tensor) -> Tensor:
        gate, up = self._gate_up(hidden).chunk(2, -1)
        return self._down(functional.silu(gate) * up)


def _under(prefix: str, sizes: dict[str, int]) -> dict[str, int]:
    return {f"{prefix}.{name}": size for name, size in sizes.items()}
