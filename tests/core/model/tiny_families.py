"""Small random models of the families that the decoder computes, each with what sets it apart."""

from pathlib import Path
from typing import Any, NamedTuple

import gguf
from gguf import MODEL_ARCH
from torch import Tensor

from tests.core.model.hf.tiny_transformers import write_model

WINDOW = 24
_ROPE = {"rope_theta": 1000.0, "original_max_position_embeddings": 64, "factor": 4.0}
_LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **_ROPE}
_BIASES = {"attention_bias": True, "mlp_bias": True}
_WINDOWS = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}
_TYPES = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}
_HEAD = {"head_dim": 16, "query_pre_attn_scalar": 16}
_CAPS = {"final_logit_softcapping": 3.0, "attn_logit_softcapping": 5.0}


class TinyFamily(NamedTuple):
    """``gguf_arch`` as llama.cpp calls it; None for what only a ``config.json`` can say."""

    family: str
    settings: dict[str, Any]
    gguf_arch: MODEL_ARCH | None

    def write(self, folder: Path) -> Any:
        """As safetensors; the model is returned, too."""
        return write_model(folder, self.family, **self.settings)


TINY_FAMILIES = {
    "llama": TinyFamily("llama", {}, MODEL_ARCH.LLAMA),
    "llama, tied": TinyFamily("llama", {"tie_word_embeddings": True}, MODEL_ARCH.LLAMA),
    "llama, biases, a head size of its own": TinyFamily("llama", {**_BIASES, "head_dim": 20}, MODEL_ARCH.LLAMA),
    "llama, Llama 3's rope": TinyFamily("llama", {"rope_parameters": _LLAMA3}, None),
    "mistral": TinyFamily("mistral", {"sliding_window": WINDOW}, MODEL_ARCH.LLAMA),
    "qwen2": TinyFamily("qwen2", {"tie_word_embeddings": True}, MODEL_ARCH.QWEN2),
    "qwen2, windows": TinyFamily("qwen2", _WINDOWS, None),
    "qwen2, YaRN": TinyFamily("qwen2", {"rope_parameters": {"rope_type": "yarn", **_ROPE}}, MODEL_ARCH.QWEN2),
    "qwen3": TinyFamily("qwen3", {"head_dim": 16}, MODEL_ARCH.QWEN3),
    "gemma2": TinyFamily("gemma2", {**_HEAD, "sliding_window": WINDOW, **_CAPS}, MODEL_ARCH.GEMMA2),
    "gemma2, its own score scale": TinyFamily("gemma2", {"query_pre_attn_scalar": 10, **_CAPS, **_TYPES}, None),
    "gemma3_text": TinyFamily("gemma3_text", {**_HEAD, **_TYPES}, MODEL_ARCH.GEMMA3),
    "phi3": TinyFamily("phi3", {"sliding_window": WINDOW}, MODEL_ARCH.PHI3),
}


def write_gguf(model: Any, arch: MODEL_ARCH, path: Path, kind: gguf.GGMLQuantizationType) -> None:
    """As llama.cpp's converter does: a llama's q and k permuted, gemma's norms above 0, vectors in F32."""
    config = model.config
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    _write_metadata(writer, config)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    weights = model.state_dict()
    if config.tie_word_embeddings:
        del weights["lm_head.weight"]
    for name, weight in weights.items():
        stored = _as_converted(name, weight, config, arch).contiguous().numpy()
        stored_kind = kind if weight.ndim > 1 else gguf.GGMLQuantizationType.F32
        stored_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored_name is not None, name
        writer.add_tensor(stored_name, gguf.quants.quantize(stored, stored_kind), raw_dtype=stored_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_metadata(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    if window := getattr(config, "sliding_window", None):
        writer.add_sliding_window(window)
    if softcap := getattr(config, "attn_logit_softcapping", None):
        writer.add_attn_logit_softcapping(softcap)
    if softcap := getattr(config, "final_logit_softcapping", None):
        writer.add_final_logit_softcapping(softcap)
    _write_rope(writer, config)


def _write_rope(writer: gguf.GGUFWriter, config: Any) -> None:
    rope = config.rope_parameters
    if "full_attention" in rope:
        rope = rope["full_attention"]
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def _as_converted(name: str, weight: Tensor, config: Any, arch: MODEL_ARCH) -> Tensor:
    if arch in (MODEL_ARCH.GEMMA2, MODEL_ARCH.GEMMA3) and name.endswith("norm.weight"):
        return weight + 1
    if arch == MODEL_ARCH.LLAMA and any(part in name for part in ("q_proj", "k_proj")):
        num_heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        halves = weight.view(num_heads, 2, -1, *weight.shape[1:])
        return halves.swapaxes(1, 2).reshape(weight.shape)
    return weight
