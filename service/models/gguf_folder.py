"""The files that make a folder with a GGUF a model folder: for us, and for the genuine front ends of the wire."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.models.errors import ModelError
from service.models.gguf_header import GgufHeader, read_gguf_header
from service.models.gguf_tokenizer import adds_bos, build_tokenizer, token_named

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
WRITTEN_FILES = (*TOKENIZER_FILES, "config.json", "generation_config.json")

_ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "gemma2": ("Gemma2ForCausalLM", "gemma2"),
    "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
    "phi3": ("Phi3ForCausalLM", "phi3"),
}
_CONFIG_KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base": "rope_theta",
}
_SAMPLING_KEYS = {
    "temp": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
_FIXED: dict[str, dict[str, Any]] = {
    "gemma2": {"hidden_activation": "gelu_pytorch_tanh"},
    "gemma3": {"hidden_activation": "gelu_pytorch_tanh", "rope_local_base_freq": 10_000.0, "sliding_window_pattern": 6},
}
"""For the architecture, therefore not in the GGUF (values of transformers' Gemma3TextConfig)."""
_LARGEST_GEMMAS = {"gemma2": 46, "gemma3": 62}
"""Layers of the 27B models, whose scores are not scaled by the size of a head."""


def write_gguf_folder(gguf: Path, folder: Path, sampling: Mapping[str, float] | None = None) -> None:
    """Write WRITTEN_FILES into ``folder``, made from the metadata of ``gguf``; ``sampling`` where that says nothing.

    Raises ModelError if the file is unreadable, or its architecture or tokenizer is of a kind not known here.
    """
    header = read_gguf_header(gguf)
    try:
        tokenizer = build_tokenizer(header.metadata)
        written = (
            _tokenizer_config(header.metadata),
            _config(header),
            _generation_config(header.metadata, sampling or {}),
        )
    except ModelError as error:
        raise ModelError(f"{gguf}: {error}") from error
    except KeyError as error:
        raise ModelError(f"{gguf} lacks the metadata {error}") from error
    except Exception as error:  # the tokenizers library raises nothing narrower
        raise ModelError(f"{gguf} has a tokenizer that cannot be built: {error}") from error
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in zip(WRITTEN_FILES[1:], written, strict=True):
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _tokenizer_config(metadata: dict[str, Any]) -> dict[str, Any]:
    roles = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": _by_architecture(metadata, "context_length"),
        "clean_up_tokenization_spaces": False,
        "add_bos_token": adds_bos(metadata),
        "add_eos_token": bool(metadata.get("tokenizer.ggml.add_eos_token", False)),
        **_present({name: token_named(metadata, role) for name, role in roles.items()}),
        **_present({"chat_template": metadata.get("tokenizer.chat_template")}),
    }


def _config(header: GgufHeader) -> dict[str, Any]:
    metadata = header.metadata
    architecture = metadata["general.architecture"]
    if architecture not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise ModelError(f"general.architecture {architecture!r} is not supported (supported: {known})")
    class_name, model_type = _ARCHITECTURES[architecture]
    shapes = {name: _by_architecture(metadata, key) for key, name in _CONFIG_KEYS.items()}
    return {
        "architectures": [class_name],
        "model_type": model_type,
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        **_present(shapes),
        "tie_word_embeddings": "output.weight" not in header.tensor_names,
        **_present(_token_ids(metadata)),
        **_FIXED.get(architecture, {}),
        **_score_scale(architecture, shapes),
    }


def _score_scale(architecture: str, shapes: dict[str, Any]) -> dict[str, Any]:
    if architecture not in _LARGEST_GEMMAS:
        return {}
    is_largest = shapes["num_hidden_layers"] == _LARGEST_GEMMAS[architecture]
    per_head = shapes["hidden_size"] // shapes["num_attention_heads"]
    return {"query_pre_attn_scalar": per_head if is_largest else shapes["head_dim"]}


def _generation_config(metadata: dict[str, Any], recommended: Mapping[str, float]) -> dict[str, Any]:
    declared = {name: metadata.get(f"general.sampling.{key}") for key, name in _SAMPLING_KEYS.items()}
    ends = [metadata.get(f"tokenizer.ggml.{role}_token_id") for role in ("eos", "eot", "eom")]
    eos_token_ids = list(dict.fromkeys(token_id for token_id in ends if token_id is not None))
    ids = _token_ids(metadata)
    if len(eos_token_ids) > 1:
        ids["eos_token_id"] = eos_token_ids
    return {**_present(ids), **recommended, **_present(declared)}


def _token_ids(metadata: dict[str, Any]) -> dict[str, Any]:
    roles = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    return {name: metadata.get(f"tokenizer.ggml.{role}_token_id") for name, role in roles.items()}


def _by_architecture(metadata: dict[str, Any], key: str) -> Any:
    return metadata.get(f"{metadata['general.architecture']}.{key}")


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
