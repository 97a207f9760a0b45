"""A small random model: its weights, the files that hold them, and its logits by the book."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from core.model.architecture import Architecture, Rope
from core.model.decoder.rope import rope_frequencies

TINY = Architecture(
    family="llama",
    vocab_size=160,
    hidden_size=64,
    intermediate_size=96,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_size=16,
    norm_eps=1e-5,
    max_model_len=512,
    ropes=(Rope(theta=1000.0),) * 3,
    attention_scale=16**-0.5,
    windows=(None,) * 3,
)
TINY_NATIVE = replace(TINY, hidden_size=128, head_size=32, attention_scale=32**-0.5)
"""Whose sizes are whole registers: native kernels compute a step of it in one call."""
TINY_QWEN2 = replace(TINY, family="qwen2")
_GGUF_NAMES = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, TINY.num_layers)


class TinyModel:
    """``weights`` by Hugging Face name, float32; tied embeddings unless ``has_head``, biases as the family has them."""

    def __init__(self, architecture: Architecture, has_head: bool = False, seed: int = 0) -> None:
        self.architecture = a = architecture
        self._generator = torch.Generator().manual_seed(seed)
        self.weights = {"model.embed_tokens.weight": self._random(a.vocab_size, a.hidden_size)}
        self.weights["model.norm.weight"] = self._random(a.hidden_size)
        if has_head:
            self.weights["lm_head.weight"] = self._random(a.vocab_size, a.hidden_size)
        for layer in range(a.num_layers):
            self._add_layer(f"model.layers.{layer}")

    def _random(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator) * (0.3 if len(shape) > 1 else 1.0)

    def _add_layer(self, prefix: str) -> None:
        a = self.architecture
        sizes = {"q_proj": a.query_size, "k_proj": a.kv_size, "v_proj": a.kv_size}
        for name, size in sizes.items():
            self.weights[f"{prefix}.self_attn.{name}.weight"] = self._random(size, a.hidden_size)
            if a.family == "qwen2":
                self.weights[f"{prefix}.self_attn.{name}.bias"] = self._random(size)
        self.weights[f"{prefix}.self_attn.o_proj.weight"] = self._random(a.hidden_size, a.query_size)
        for name in ("gate_proj", "up_proj"):
            self.weights[f"{prefix}.mlp.{name}.weight"] = self._random(a.intermediate_size, a.hidden_size)
        self.weights[f"{prefix}.mlp.down_proj.weight"] = self._random(a.hidden_size, a.intermediate_size)
        for name in ("input_layernorm", "post_attention_layernorm"):
            self.weights[f"{prefix}.{name}.weight"] = self._random(a.hidden_size)

    def config(self) -> dict[str, Any]:
        a = self.architecture
        return {
            "model_type": a.family,
            "vocab_size": a.vocab_size,
            "hidden_size": a.hidden_size,
            "intermediate_size": a.intermediate_size,
            "num_hidden_layers": a.num_layers,
            "num_attention_heads": a.num_heads,
            "num_key_value_heads": a.num_kv_heads,
            "rms_norm_eps": a.norm_eps,
            "max_position_embeddings": a.max_model_len,
            "rope_theta": a.ropes[0].theta,
            "tie_word_embeddings": "lm_head.weight" not in self.weights,
        }

    def write_safetensors(self, folder: Path, dtype: torch.dtype = torch.float32, **config: Any) -> None:
        (folder / "config.json").write_text(json.dumps({**self.config(), **config}))
        save_file({name: weight.to(dtype) for name, weight in self.weights.items()}, folder / "model.safetensors")

    def write_gguf(
        self,
        path: Path,
        quantization: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
        extra: dict[str, Tensor] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """As llama.cpp's converter does: q and k of a llama permuted, vectors in F32."""
        writer = gguf.GGUFWriter(path, self.architecture.family)
        self._write_metadata(writer, metadata or {})
        for name, weight in {**self.weights, **(extra or {})}.items():
            stored = self._permute(name, weight).numpy()
            kind = quantization if weight.ndim > 1 else gguf.GGMLQuantizationType.F32
            data = gguf.quants.quantize(stored, kind)
            writer.add_tensor(_gguf_name(name), data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def _write_metadata(self, writer: gguf.GGUFWriter, metadata: dict[str, Any]) -> None:
        a = self.architecture
        writer.add_context_length(a.max_model_len)
        writer.add_embedding_length(a.hidden_size)
        writer.add_block_count(a.num_layers)
        writer.add_feed_forward_length(a.intermediate_size)
        writer.add_head_count(a.num_heads)
        writer.add_head_count_kv(a.num_kv_heads)
        writer.add_layer_norm_rms_eps(a.norm_eps)
        writer.add_rope_freq_base(a.ropes[0].theta)
        writer.add_token_list([f"token {i}" for i in range(a.vocab_size)])
        for key, value in metadata.items():
            kind = gguf.GGUFValueType.get_type(value)
            writer.add_key_value(
                key, value, kind, gguf.GGUFValueType.INT32 if kind == gguf.GGUFValueType.ARRAY else None
            )

    def _permute(self, name: str, weight: Tensor) -> Tensor:
        a = self.architecture
        if a.family != "llama" or not any(part in name for part in ("q_proj", "k_proj")):
            return weight.contiguous()
        num_heads = a.num_heads if "q_proj" in name else a.num_kv_heads
        halves = weight.view(num_heads, 2, a.head_size // 2, *weight.shape[1:])
        return halves.swapaxes(1, 2).reshape(weight.shape).contiguous()

    def logits(self, token_ids: list[int], factors: Tensor | None = None) -> Tensor:
        """float64 [tokens, vocab_size] of one dense causal pass."""
        a, w = self.architecture, {name: weight.double() for name, weight in self.weights.items()}
        hidden = w["model.embed_tokens.weight"][token_ids]
        frequencies = rope_frequencies(a.ropes[0], a.head_size, factors).double()
        for layer in range(a.num_layers):
            prefix = f"model.layers.{layer}"
            hidden = hidden + self._attention(w, prefix, hidden, frequencies)
            x = self._norm(hidden, w[f"{prefix}.post_attention_layernorm.weight"])
            gate, up = (x @ w[f"{prefix}.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
            hidden = hidden + (gate * gate.sigmoid() * up) @ w[f"{prefix}.mlp.down_proj.weight"].T
        head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
        return self._norm(hidden, w["model.norm.weight"]) @ head.T

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + self.architecture.norm_eps).sqrt() * weight

    def _attention(self, w: dict[str, Tensor], prefix: str, hidden: Tensor, frequencies: Tensor) -> Tensor:
        a = self.architecture
        x = self._norm(hidden, w[f"{prefix}.input_layernorm.weight"])
        q, k, v = (self._project(w, f"{prefix}.self_attn.{name}_proj", x) for name in "qkv")
        q, k = _rotate(q, frequencies), _rotate(k, frequencies)
        k, v = (heads.repeat_interleave(a.num_heads // a.num_kv_heads, 1) for heads in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) / a.head_size**0.5
        scores += torch.full_like(scores, -torch.inf).triu(1)
        attended = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).flatten(1)
        return attended @ w[f"{prefix}.self_attn.o_proj.weight"].T

    def _project(self, w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
        return (x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)).unflatten(1, (-1, self.architecture.head_size))


def _rotate(heads: Tensor, frequencies: Tensor) -> Tensor:
    """Each pair (x[i], x[i + half]) as a complex number, turned by position times frequency."""
    angles = torch.arange(len(heads))[:, None, None] * frequencies
    first, second = heads.chunk(2, -1)
    turned = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag), -1)


def _gguf_name(name: str) -> str:
    return _GGUF_NAMES.get_name(name, try_suffixes=(".weight", ".bias")) or name


def random_tokens(count: int, vocab_size: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, vocab_size, count).tolist()
