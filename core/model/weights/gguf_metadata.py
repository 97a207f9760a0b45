"""What a GGUF's metadata says of its model."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.model.architecture import Architecture, Rope, YarnScaling
from core.model.families import FAMILIES, MAX_LAYERS
from core.model.weights.gguf_file import GgufFile
from core.model.weights.settings import Settings
from core.model.weights.weight_source import ModelLoadError

_FAMILIES_BY_NAME = {family.gguf_architecture: name for name, family in FAMILIES.items() if family.gguf_architecture}
_ONLY: Mapping[str, float] = {
    "expert_count": 0,
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.yarn_attn_factor": 1.0,
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_log_multiplier": 0.0,
}
"""What else a file may ask for, and the one value that we have."""
_LONGROPE_TENSOR = "rope_factors_long.weight"
_LARGEST_LAYERS = {"gemma2": 46, "gemma3_text": 62}
"""Of the 27B models, which alone do not scale the scores by the size of a head."""


def read_architecture(file: GgufFile) -> Architecture:
    """Raises ModelLoadError for what is missing, and for what the decoder cannot do."""
    place = f"{file.path}: metadata "
    general = Settings(place, file.metadata)
    name = general.choice("general.architecture", tuple(_FAMILIES_BY_NAME))
    if (num_parts := file.metadata.get("split.count", 1)) not in (0, 1):
        general.reject("split.count", "must be 1 (the parts joined)", num_parts)
    family = _FAMILIES_BY_NAME[name]
    keys = Settings(place, file.metadata, f"{name}.")
    defaults = FAMILIES[family].config_defaults
    num_heads, hidden_size = keys.count("attention.head_count"), keys.count("embedding_length")
    head_size = keys.count("attention.key_length", hidden_size // num_heads)
    windows = _read_windows(keys, defaults.get("sliding_window_pattern"))
    _check_supported(file, keys, head_size)
    return Architecture(
        family=family,
        vocab_size=_vocab_size(file),
        hidden_size=hidden_size,
        intermediate_size=keys.count("feed_forward_length"),
        num_layers=len(windows),
        num_heads=num_heads,
        num_kv_heads=keys.count("attention.head_count_kv", num_heads),
        head_size=head_size,
        norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
        max_model_len=keys.count("context_length"),
        windows=windows,
        ropes=_read_ropes(keys, windows, defaults),
        attention_scale=_attention_scale(family, len(windows), head_size, hidden_size / num_heads),
        attention_softcap=keys.number_if_any("attn_logit_softcapping", defaults.get("attn_logit_softcapping")),
        logits_softcap=keys.number_if_any("final_logit_softcapping", defaults.get("final_logit_softcapping")),
    )


def _check_supported(file: GgufFile, keys: Settings, head_size: int) -> None:
    for key in ("rope.dimension_count", "attention.value_length"):
        if (size := keys.count(key, head_size)) != head_size:
            keys.reject(key, f"must equal the head size {head_size}", size)
    for key, value in _ONLY.items():
        keys.choice(key, (value,), value)
    if _LONGROPE_TENSOR in file.tensors:
        raise ModelLoadError(f"{file.path}: tensor {_LONGROPE_TENSOR}: LongRoPE is not supported in GGUF files")


def _read_windows(keys: Settings, pattern: int | None) -> tuple[int | None, ...]:
    """For each layer. If the file does not say which have one, all but every ``pattern``-th do."""
    num_layers = keys.count("block_count", most=MAX_LAYERS)
    window = keys.count("attention.sliding_window", 0, least=0) or None
    key = "attention.sliding_window_pattern"
    stored = keys.values.get(keys.prefix + key)
    if isinstance(stored, list):
        if len(stored) != num_layers:
            keys.reject(key, f"must have {num_layers} entries", stored)
        return tuple(window if is_sliding else None for is_sliding in stored)
    every = keys.count(key, pattern) if stored is not None or pattern is not None else MAX_LAYERS + 1
    return tuple(window if (layer + 1) % every else None for layer in range(num_layers))


def _read_ropes(keys: Settings, windows: Sequence[int | None], defaults: Mapping[str, Any]) -> tuple[Rope, ...]:
    everywhere = _read_rope(keys, defaults.get("rope_theta", 10_000.0))
    local_theta = keys.number_if_any("rope.freq_base_swa", defaults.get("rope_local_base_freq"))
    local = everywhere if local_theta is None else Rope(local_theta)
    return tuple(everywhere if window is None else local for window in windows)


def _read_rope(keys: Settings, default_theta: float) -> Rope:
    kind = keys.choice("rope.scaling.type", ("none", "linear", "yarn"), "none")
    return Rope(
        theta=keys.number("rope.freq_base", default_theta),
        linear_factor=keys.number("rope.scaling.factor") if kind == "linear" else 1.0,
        yarn=_read_yarn(keys) if kind == "yarn" else None,
    )


def _read_yarn(keys: Settings) -> YarnScaling:
    return YarnScaling(
        factor=keys.number("rope.scaling.factor"),
        original_max_len=keys.count("rope.scaling.original_context_length", keys.count("context_length")),
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
    )


def _attention_scale(family: str, num_layers: int, head_size: int, hidden_size_per_head: float) -> float:
    """The files do not say it; llama.cpp goes by the number of layers, too (llama-model.cpp, ``f_attention_scale``)."""
    is_largest = _LARGEST_LAYERS.get(family) == num_layers
    return float((hidden_size_per_head if is_largest else head_size) ** -0.5)


def _vocab_size(file: GgufFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelLoadError(f"{file.path}: tensor token_embd.weight is missing")
    return embedding.shape[0]
