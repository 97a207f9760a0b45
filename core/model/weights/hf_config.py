"""What a Hugging Face ``config.json`` says of a model, in the spelling of transformers 4 and 5."""

from collections.abc import Sequence
from typing import Any

from core.model.architecture import Architecture, Llama3Scaling, Rope, YarnScaling
from core.model.families import FAMILIES, MAX_LAYERS, Family
from core.model.weights.settings import Settings

_FULL, _SLIDING = _TYPES = "full_attention", "sliding_attention"


def find_text_config(config: Settings) -> Settings:
    """``config`` with its family's defaults; of a ``gemma3``, which sees images too, the language model's part.

    Raises ModelLoadError for a family that is not known.
    """
    if config.values.get("model_type") == "gemma3":
        config = Settings(f"{config.place}text_config.", config.mapping("text_config"))
        config = config.or_else({"model_type": "gemma3_text"})
    family = FAMILIES[config.choice("model_type", tuple(FAMILIES))]
    return config.or_else(family.config_defaults)


def read_architecture(config: Settings) -> Architecture:
    """Of a configuration with its family's defaults. Raises ModelLoadError for what the decoder cannot do."""
    family = FAMILIES[config.values["model_type"]]
    _check_supported(config, family)
    num_heads, hidden_size = config.count("num_attention_heads"), config.count("hidden_size")
    head_size = config.count("head_dim", hidden_size // num_heads)
    layer_types = _read_layer_types(config)
    return Architecture(
        family=config.values["model_type"],
        vocab_size=config.count("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=config.count("intermediate_size"),
        num_layers=len(layer_types),
        num_heads=num_heads,
        num_kv_heads=config.count("num_key_value_heads", num_heads),
        head_size=head_size,
        norm_eps=config.number("rms_norm_eps"),
        max_model_len=config.count("max_position_embeddings"),
        windows=tuple(config.count("sliding_window") if kind == _SLIDING else None for kind in layer_types),
        ropes=_read_ropes(config, layer_types, family),
        attention_scale=config.number("query_pre_attn_scalar", head_size) ** -0.5,
        attention_softcap=config.number_if_any("attn_logit_softcapping"),
        logits_softcap=config.number_if_any("final_logit_softcapping"),
    )


def _check_supported(config: Settings, family: Family) -> None:
    for key in ("hidden_act", "hidden_activation"):
        config.choice(key, (family.activation,), family.activation)
    config.choice("quantization_config", (None,))
    config.choice("use_bidirectional_attention", (False,), False)


def _read_layer_types(config: Settings) -> Sequence[str]:
    """Of each layer; where the configuration has no list, by the rule of its family."""
    num_layers = config.count("num_hidden_layers", most=MAX_LAYERS)
    types = config.values.get("layer_types")
    if types is None:
        return [_SLIDING if _is_sliding(config, layer) else _FULL for layer in range(num_layers)]
    if not isinstance(types, list) or len(types) != num_layers or any(kind not in _TYPES for kind in types):
        config.reject("layer_types", f"must be {num_layers} times {_FULL} or {_SLIDING}", types)
    return types


def _is_sliding(config: Settings, layer: int) -> bool:
    if config.values.get("sliding_window") is None or not config.choice("use_sliding_window", (True, False), True):
        return False
    if "sliding_window_pattern" in config.values:
        return (layer + 1) % config.count("sliding_window_pattern") != 0
    return layer >= config.count("max_window_layers", 0, least=0)


def _read_ropes(config: Settings, layer_types: Sequence[str], family: Family) -> tuple[Rope, ...]:
    by_type = {kind: _read_rope(_rope_settings(config, kind), family) for kind in set(layer_types)}
    return tuple(by_type[kind] for kind in layer_types)


def _rope_settings(config: Settings, layer_type: str) -> Settings:
    """Of one type of layer. ``rope_parameters`` is what transformers 5 has for ``rope_theta`` and ``rope_scaling``."""
    scaling = config.mapping("rope_parameters" if config.values.get("rope_parameters") else "rope_scaling")
    has_local_rope = layer_type == _SLIDING and "rope_local_base_freq" in config.values
    if _FULL in scaling or _SLIDING in scaling:
        scaling = Settings(config.place, scaling).mapping(layer_type)
    elif has_local_rope:
        scaling = {}
    outside: dict[str, Any] = {
        "rope_theta": config.values.get("rope_local_base_freq" if has_local_rope else "rope_theta"),
        "rope_type": scaling.get("type"),
        "partial_rotary_factor": config.values.get("partial_rotary_factor"),
        "max_position_embeddings": config.values.get("max_position_embeddings"),
    }
    return Settings(config.place, {**outside, **scaling})


def _read_rope(rope: Settings, family: Family) -> Rope:
    kind = rope.choice("rope_type", family.rope_types, "default")
    rope.choice("partial_rotary_factor", (1,), 1)
    return Rope(
        theta=rope.number("rope_theta", 10_000.0),
        linear_factor=rope.number("factor") if kind == "linear" else 1.0,
        llama3=_read_llama3(rope) if kind == "llama3" else None,
        yarn=_read_yarn(rope) if kind == "yarn" else None,
    )


def _read_llama3(rope: Settings) -> Llama3Scaling:
    return Llama3Scaling(
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_max_len=rope.count("original_max_position_embeddings"),
    )


def _read_yarn(rope: Settings) -> YarnScaling:
    for key in ("mscale", "mscale_all_dim"):
        rope.choice(key, (None,))
    rope.choice("truncate", (True,), True)
    return YarnScaling(
        factor=rope.number("factor"),
        original_max_len=rope.count("original_max_position_embeddings", rope.values["max_position_embeddings"]),
        beta_fast=rope.number("beta_fast", 32.0),
        beta_slow=rope.number("beta_slow", 1.0),
        attention_factor=rope.number_if_any("attention_factor"),
    )
