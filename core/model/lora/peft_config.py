"""``adapter_config.json`` of a LoRA adapter, as PEFT writes it."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

from core.model.weights.settings import Settings
from core.model.weights.weight_source import ModelLoadError

CONFIG_FILE = "adapter_config.json"
_ALL_LINEAR = "all-linear"
_REFUSED = {
    "use_dora": "DoRA scales the base model's weights too",
    "use_qalora": "QA-LoRA pools the inputs",
    "modules_to_save": "whole modules cannot be exchanged for some requests",
    "trainable_token_indices": "rows of the embedding cannot be exchanged for some requests",
    "target_parameters": "only linear layers are adapted",
    "lora_bias": "biases cannot be exchanged for some requests",
    "fan_in_fan_out": "the model's layers are linear, not Conv1D",
    "layer_replication": "the model's layers are what they are",
    "rank_pattern": "an adapter has one rank",
    "alpha_pattern": "an adapter has one scale",
    "alora_invocation_tokens": "an adapter works on every token",
}
"""What would change the result and is not done here, with the reason."""
_CHANGES_THE_BASE = ("pissa", "olora", "corda", "loftq")
"""Initialisations that leave another base model behind, unless the adapter was converted when it was saved."""


@dataclass(frozen=True)
class PeftConfig:
    """``scale`` multiplies what the adapter adds. ``targets``: names or ends of names, or one regular expression."""

    rank: int
    scale: float
    targets: tuple[str, ...] | re.Pattern[str]

    def is_target(self, module: str) -> bool:
        """Whether PEFT puts the adapter at ``module``, by the rules of its ``check_target_module_exists``."""
        if isinstance(self.targets, re.Pattern):
            return self.targets.fullmatch(module) is not None
        return any(module == target or module.endswith(f".{target}") for target in self.targets)


def read_peft_config(folder: Path, max_rank: int) -> PeftConfig:
    """Raises ModelLoadError, which names file and field, for what is missing, wrong, or more than LoRA."""
    path = folder / CONFIG_FILE
    config = Settings(f"{path}: ", _read_object(path))
    config.choice("peft_type", ("LORA",))
    config.choice("bias", ("none",), "none")
    for key, reason in _REFUSED.items():
        if value := config.values.get(key):
            config.reject(key, f"must be empty ({reason})", value)
    _check_initialisation(config)
    rank = config.count("r")
    if rank > max_rank:
        config.reject("r", f"must be at most {max_rank}, which is --max-lora-rank", rank)
    divisor = math.sqrt(rank) if config.choice("use_rslora", (False, True), False) else rank
    return PeftConfig(rank, config.number("lora_alpha") / divisor, _read_targets(config))


def _check_initialisation(config: Settings) -> None:
    value = config.values.get("init_lora_weights")
    if isinstance(value, str) and value.lower().startswith(_CHANGES_THE_BASE):
        config.reject("init_lora_weights", "must not be one that changes the base model: convert the adapter", value)


def _read_targets(config: Settings) -> tuple[str, ...] | re.Pattern[str]:
    """A string is a regular expression; PEFT takes a list for names or ends of names."""
    value = config.values.get("target_modules")
    if value == _ALL_LINEAR:
        value = ".*"
    if isinstance(value, str):
        try:
            return re.compile(value)
        except re.error as error:
            config.reject("target_modules", f"must be a regular expression ({error})", value)
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        config.reject("target_modules", "must be names of modules, a regular expression or all-linear", value)
    return tuple(value)


def _read_object(path: Path) -> dict[str, object]:
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path}: cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ModelLoadError(f"{path}: must be a JSON object, got {type(values).__name__}")
    return values
