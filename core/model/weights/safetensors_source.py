"""Weights and architecture out of a Hugging Face folder: ``config.json`` and ``*.safetensors``."""

from collections.abc import Container
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from core.model.families import FAMILIES
from core.model.weights.hf_config import find_text_config, read_architecture
from core.model.weights.settings import Settings, read_json, read_settings
from core.model.weights.weight_source import ModelLoadError, RowTable, WeightSource

_DTYPES = ("F64", "F32", "F16", "BF16")
_DERIVED_SUFFIX = "rotary_emb.inv_freq"
"""Old checkpoints store what the configuration says already."""
_TEXT_PREFIXES = {
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "model.",
}
_OTHER_PARTS = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")
"""Of a gemma3, whose language model alone is served."""
_FIRST_LAYER = "model.layers.0"
_BIASES = {
    "attention_bias": f"{_FIRST_LAYER}.self_attn.q_proj.bias",
    "mlp_bias": f"{_FIRST_LAYER}.mlp.gate_proj.bias",
}


def read_config(folder: Path) -> Settings:
    """The folder's ``config.json`` as it is. Raises ModelLoadError."""
    return read_settings(folder / "config.json")


def open_safetensors(folder: Path) -> WeightSource:
    """Raises ModelLoadError for a folder that is incomplete or of a family that is not supported."""
    config = find_text_config(read_config(folder))
    architecture = read_architecture(config)
    stored = {name: tensor for path in _weight_files(folder) for name, tensor in _open_file(path).items()}
    tensors = {_text_name(name): tensor for name, tensor in stored.items() if not name.startswith(_OTHER_PARTS)}
    if FAMILIES[architecture.family].has_norms_around_one:
        tensors = {name: replace(tensor, added=_norm_offset(name)) for name, tensor in tensors.items()}
    _check_promises(folder, config, tensors)
    return WeightSource(folder, architecture, tensors)


@dataclass(frozen=True)
class _StoredSafetensor:
    """``added`` is what its elements lack of what they stand for."""

    file: Any
    name: str
    shape: tuple[int, ...]
    added: float = 0.0

    def dense(self) -> Tensor:
        return self._completed(self._read())

    def part(self, dim: int, places: range) -> Tensor:
        before = (slice(None),) * dim
        return self._completed(self.file.get_slice(self.name)[*before, places.start : places.stop])

    def affine_part(self, dim: int, places: range) -> None:  # noqa: ARG002 - it stores floats
        return None

    def row_table(self) -> RowTable:
        # A copy, because a file that shrinks under its mapping would kill the process.
        rows = self._read().clone()
        return lambda ids: rows[ids].to(torch.float32)

    def _completed(self, values: Tensor) -> Tensor:
        values = values.to(torch.float32)
        return values + self.added if self.added else values

    def _read(self) -> Tensor:
        tensor: Tensor = self.file.get_tensor(self.name)
        return tensor


def _text_name(name: str) -> str:
    """``name`` without what a model that sees images puts before those of its language model."""
    for prefix, plain in _TEXT_PREFIXES.items():
        if name.startswith(prefix):
            return plain + name.removeprefix(prefix)
    return name


def _norm_offset(name: str) -> float:
    return 1.0 if name.endswith("norm.weight") else 0.0


def _check_promises(folder: Path, config: Settings, tensors: Container[str]) -> None:
    """What the configuration says there is must be there: elsewhere it would be made of random numbers."""
    if not config.values.get("tie_word_embeddings", False) and "lm_head.weight" not in tensors:
        raise ModelLoadError(f"{folder}: tensor lm_head.weight is missing, and tie_word_embeddings is not set")
    for key, name in _BIASES.items():
        if config.values.get(key) and name not in tensors:
            raise ModelLoadError(f"{folder}: tensor {name} is missing, and {key} is set")


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
