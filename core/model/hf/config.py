"""The configuration of a model that transformers computes, and what of it cannot be served."""

from pathlib import Path
from typing import Any

import transformers
from transformers import CONFIG_MAPPING, AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from core.model.weights.settings import read_json
from core.model.weights.weight_source import ModelLoadError

MXFP4 = "mxfp4"
"""The one ``quant_method`` that is read: four bits, and a scale for every 32 of them. Weights are dequantized."""
_HEADS = ("ForCausalLM", "LMHeadModel")


def read_config(folder: Path) -> Any:
    """transformers' own, of the folder's ``config.json``. Raises ModelLoadError.

    Code that lies in the folder is never run.
    """
    path = folder / "config.json"
    _check_raw(path, read_json(path))
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # its validators raise what they like
        raise ModelLoadError(f"{path}: transformers cannot read it: {error}") from error
    _check(path, config)
    config.use_cache = config.output_attentions = config.output_hidden_states = False
    return config


def longest_context(path: Path, config: Any) -> int:
    """In tokens. Raises ModelLoadError if the configuration does not say."""
    limit = getattr(config, "max_position_embeddings", None)
    if type(limit) is not int or limit < 1:
        raise ModelLoadError(f"{path}: max_position_embeddings, the longest context, must be an integer >= 1")
    return limit


def _check_raw(path: Path, raw: dict[str, Any]) -> None:
    family = raw.get("model_type")
    if not isinstance(family, str) or family not in CONFIG_MAPPING:
        raise ModelLoadError(
            f"{path}: model_type {family!r} is known neither to the core nor to transformers {transformers.__version__}"
            ", and code that comes with a model is not run"
        )
    if family not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ModelLoadError(f"{path}: model_type {family}: transformers has no causal language model of that kind")
    named = [str(name) for name in raw.get("architectures") or []]
    if named and not any(name.endswith(_HEADS) for name in named):
        raise ModelLoadError(f"{path}: architectures must name a causal language model, got {', '.join(named)}")
    if (quantization := raw.get("quantization_config")) is not None and _method(quantization) != MXFP4:
        raise ModelLoadError(
            f"{path}: quantization_config: of quantized checkpoints only {MXFP4} is read, and GGUF, got "
            f"{_method(quantization)!r}"
        )


def _method(quantization: Any) -> Any:
    return quantization.get("quant_method") if isinstance(quantization, dict) else None


def _check(path: Path, config: Any) -> None:
    if config.is_encoder_decoder:
        raise ModelLoadError(f"{path}: model_type {config.model_type}: encoder-decoder models cannot be served")
    if config.get_text_config() is not config:
        raise ModelLoadError(f"{path}: model_type {config.model_type}: models of more than text cannot be served")
