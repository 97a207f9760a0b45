"""Weights and architecture out of a Hugging Face folder: ``config.json`` and ``*.safetensors``."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from core.model.architecture import FAMILIES, Architecture, Llama3Scaling, Rope
from core.model.settings import Settings
from core.model.weight_source import ModelLoadError, RowTable, WeightSource

_DTYPES = ("F64", "F32", "F16", "BF16")
_DERIVED_SUFFIX = "rotary_emb.inv_freq"
"""Old checkpoints store what the configuration says already."""


def open_safetensors(folder: Path) -> WeightSource:
    """Raises ModelLoadError for a folder that is incomplete or of a family that is not supported."""
    path = folder / "config.json"
    config = Settings(f"{path}: ", read_json(path))
    architecture = _read_architecture(config)
    tensors = {name: tensor for path in _weight_files(folder) for name, tensor in _open_file(path).items()}
    if not config.values.get("tie_word_embeddings", False) and "lm_head.weight" not in tensors:
        raise ModelLoadError(f"{folder}: tensor lm_head.weight is missing, and tie_word_embeddings is not set")
    return WeightSource(folder, architecture, tensors)


@dataclass(frozen=True)
class _StoredSafetensor:
    file: Any
    name: str
    shape: tuple[int, ...]

    def dense(self) -> Tensor:
        return self._read().to(torch.float32)

    def row_table(self) -> RowTable:
        # A copy, because a file that shrinks under its mapping would kill the process.
        rows = self._read().clone()
        return lambda ids: rows[ids].to(torch.float32)

    def _read(self) -> Tensor:
        tensor: Tensor = self.file.get_tensor(self.name)
        return tensor


def _weight_files(folder: Path) -> list[Path]:
    """The files that the index names, or else the folder's one ``.safetensors`` file."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return sorted(folder.glob("*.safetensors"))
    try:
        return [folder / name for name in sorted(set(read_json(index)["weight_map"].values()))]
    except (KeyError, AttributeError, TypeError) as exc:
        raise ModelLoadError(f"{index}: not an index of safetensors files: {exc!r}") from exc


def _open_file(path: Path) -> dict[str, _StoredSafetensor]:
    try:
        file: Any = safe_open(path, framework="pt")
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it has no __iter__
    except (OSError, SafetensorError) as exc:
        raise ModelLoadError(f"{path}: cannot be read: {exc}") from exc
    for name, part in slices.items():
        if part.get_dtype() not in _DTYPES:
            raise ModelLoadError(f"{path}: tensor {name} has unsupported type {part.get_dtype()}")
    return {
        name: _StoredSafetensor(file, name, tuple(part.get_shape()))
        for name, part in slices.items()
        if not name.endswith(_DERIVED_SUFFIX)
    }


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises ModelLoadError."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as exc:
        raise ModelLoadError(f"{path}: cannot be read: {exc}") from exc
    if not isinstance(values, dict):
        raise ModelLoadError(f"{path}: must be a JSON object, got {type(values).__name__}")
    return values


def _read_architecture(config: Settings) -> Architecture:
    family = config.choice("model_type", FAMILIES)
    config.choice("hidden_act", ("silu",), "silu")
    config.choice("use_sliding_window", (False,), False)
    config.choice("quantization_config", (None,))
    num_heads, hidden_size = config.count("num_attention_heads"), config.count("hidden_size")
    num_layers = config.count("num_hidden_layers")
    return Architecture(
        family=family,
        vocab_size=config.count("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=config.count("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=config.count("num_key_value_heads", num_heads),
        head_size=config.count("head_dim", hidden_size // num_heads),
        norm_eps=config.number("rms_norm_eps"),
        max_model_len=config.count("max_position_embeddings"),
        rope=_read_rope(config),
        windows=(None,) * num_layers,
    )


def _read_rope(config: Settings) -> Rope:
    """``rope_parameters`` is what transformers 5 writes for ``rope_theta`` and ``rope_scaling``."""
    key = "rope_parameters" if config.values.get("rope_parameters") else "rope_scaling"
    scaling = config.values.get(key) or {}
    if not isinstance(scaling, dict):
        config.reject(key, "must be a JSON object", scaling)
    values = {"rope_theta": config.values.get("rope_theta"), "rope_type": scaling.get("type"), **scaling}
    rope = Settings(config.place, values)
    kind = rope.choice("rope_type", ("default", "linear", "llama3"), "default")
    return Rope(
        theta=rope.number("rope_theta", 10_000.0),
        linear_factor=rope.number("factor") if kind == "linear" else 1.0,
        llama3=_read_llama3(rope) if kind == "llama3" else None,
    )


def _read_llama3(rope: Settings) -> Llama3Scaling:
    return Llama3Scaling(
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_max_len=rope.count("original_max_position_embeddings"),
    )
