"""The families of models that the decoder computes, each told by what sets it apart from Llama."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_LAYERS = 10_000
"""Ten times those of the deepest there is; lists of this length are made."""


@dataclass(frozen=True)
class Family:
    """``config_defaults`` is what transformers' configuration has where a ``config.json`` is silent."""

    gguf_architecture: str | None = None
    """``general.architecture``; None where GGUFs go by another family's, as Mistral's do by llama."""
    has_permuted_ggufs: bool = False
    """GGUFs store the rows of q and k in the order of ggml's interleaved rotary embedding."""
    has_fused_projections: bool = False
    """q, k and v are one tensor, gate and up another."""
    has_head_norms: bool = False
    """Each head of q and k is normalized before its rotation."""
    has_output_norms: bool = False
    """What attention and feed-forward give is normalized too, before it is added."""
    has_norms_around_one: bool = False
    """Safetensors store what a norm's weights have above 1; GGUFs store the weights."""
    scales_embedding: bool = False
    """By the square root of the hidden size."""
    activation: str = "silu"
    rope_types: tuple[str, ...] = ("default", "linear", "llama3", "yarn")
    config_defaults: Mapping[str, Any] = field(default_factory=dict)


_QWEN_WINDOWS = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
_GEMMA = {
    "tie_word_embeddings": True,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}
_GEMMA2 = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window_pattern": 2}
_GEMMA3 = {
    "vocab_size": 262_208,
    "max_position_embeddings": 131_072,
    "sliding_window_pattern": 6,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
}

FAMILIES: Mapping[str, Family] = {
    "llama": Family(gguf_architecture="llama", has_permuted_ggufs=True),
    "mistral": Family(config_defaults={"num_key_value_heads": 8, "sliding_window": 4096}),
    "qwen2": Family(gguf_architecture="qwen2", config_defaults={"attention_bias": True, **_QWEN_WINDOWS}),
    "qwen3": Family(gguf_architecture="qwen3", has_head_norms=True, config_defaults={"head_dim": 128, **_QWEN_WINDOWS}),
    "gemma2": Family(
        gguf_architecture="gemma2",
        has_output_norms=True,
        has_norms_around_one=True,
        scales_embedding=True,
        activation="gelu_pytorch_tanh",
        config_defaults=_GEMMA | _GEMMA2,
    ),
    "gemma3_text": Family(
        gguf_architecture="gemma3",
        has_head_norms=True,
        has_output_norms=True,
        has_norms_around_one=True,
        scales_embedding=True,
        activation="gelu_pytorch_tanh",
        config_defaults=_GEMMA | _GEMMA3,
    ),
    "phi3": Family(gguf_architecture="phi3", has_fused_projections=True, rope_types=("default",)),
}
"""By Hugging Face's ``model_type``."""
