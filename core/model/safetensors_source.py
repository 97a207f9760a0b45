"""Weights and architecture out of a Hugging Face folder: ``config.json`` and ``*.safetensors``."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from core.model.architecture import FAMILIES, Architecture, Llama3Scaling, Rope
from core.model.weight_source import ModelLoadError, RowTable, WeightSource

_DTYPES = ("F64", "F32", "F16", "BF16")
_DERIVED_SUFFIX = "rotary_emb.inv_freq"
"""Old checkpoints store what the configuration says already."""


def open_safetensors(folder: Path) -> WeightSource:
    """Raises ModelLoadError for a folder that is incomplete or of a family that is not supported."""
    config = _Config.read(folder / "config.json")
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
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError) as exc:
        raise ModelLoadError(f"{index}: not an index of safetensors files: {exc!r}") from exc
    return [folder / name for name in names]


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


@dataclass(frozen=True)
class _Config:
    path: Path
    values: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> "_Config":
        try:
            values = json.loads(path.read_text())
        except (OSError, ValueError) as exc:
            raise ModelLoadError(f"{path}: cannot be read: {exc}") from exc
        if not isinstance(values, dict):
            raise ModelLoadError(f"{path}: must be a JSON object, got {type(values).__name__}")
        return cls(path, values)

    def number(self, key: str, default: Any = None) -> Any:
        """A null counts as absent, as Hugging Face reads it."""
        value = self.values.get(key)
        value = default if value is None else value
        if not isinstance(value, int | float):
            raise ModelLoadError(f"{self.path}: {key} must be a number, got {value!r}")
        return value

    def expect(self, key: str, *allowed: Any) -> None:
        if (value := self.values.get(key, allowed[0])) not in allowed:
            raise ModelLoadError(f"{self.path}: {key} must be one of {', '.join(map(str, allowed))}, got {value!r}")


def _read_architecture(config: _Config) -> Architecture:
    config.expect("model_type", *FAMILIES)
    config.expect("hidden_act", "silu")
    config.expect("use_sliding_window", False)
    config.expect("quantization_config", None)
    num_heads, hidden_size = config.number("num_attention_heads"), config.number("hidden_size")
    return Architecture(
        family=config.values["model_type"],
        vocab_size=config.number("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=config.number("intermediate_size"),
        num_layers=config.number("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=config.number("num_key_value_heads", num_heads),
        head_size=config.number("head_dim", hidden_size // num_heads),
        norm_eps=config.number("rms_norm_eps"),
        max_model_len=config.number("max_position_embeddings"),
        rope=_read_rope(config),
    )


def _read_rope(config: _Config) -> Rope:
    """``rope_parameters`` is what transformers 5 writes for ``rope_theta`` and ``rope_scaling``."""
    scaling = config.values.get("rope_parameters") or config.values.get("rope_scaling") or {}
    rope = _Config(
        config.path, {"rope_theta": config.values.get("rope_theta"), "rope_type": scaling.get("type"), **scaling}
    )
    rope.expect("rope_type", None, "default", "linear", "llama3")
    kind = rope.values["rope_type"]
    return Rope(
        theta=rope.number("rope_theta", 10_000.0),
        linear_factor=rope.number("factor") if kind == "linear" else 1.0,
        llama3=_read_llama3(rope) if kind == "llama3" else None,
    )


def _read_llama3(rope: _Config) -> Llama3Scaling:
    return Llama3Scaling(
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_max_len=rope.number("original_max_position_embeddings"),
    )
