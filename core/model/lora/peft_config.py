"""``adapter_config.json`` of a LoRA adapter, as PEFT writes it."""

import math
from dataclasses import dataclass
from pathlib import Path

from core.model.weights.settings import Settings, read_settings

CONFIG_FILE = "adapter_config.json"
_MAX_CONFIG_BYTES = 1 << 20
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
    """``scale`` multiplies what the adapter adds. ``targets``: names or ends of names; None: whatever has tensors."""

    rank: int
    scale: float
    targets: tuple[str, ...] | None

    def is_target(self, module: str) -> bool:
        """Whether PEFT puts the adapter at ``module``, by the rules of its ``check_target_module_exists``."""
        return self.targets is None or any(module == target or module.endswith(f".{target}") for target in self.targets)


def read_peft_config(folder: Path, max_rank: int) -> PeftConfig:
    """Raises ModelLoadError, which names file and field, for what is missing, wrong, or more than LoRA."""
    config = read_settings(folder / CONFIG_FILE, _MAX_CONFIG_BYTES)
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


def _read_targets(config: Settings) -> tuple[str, ...] | None:
    """PEFT takes a list for names or ends of names, and a string for a regular expression, or all linear layers.

    An expression is not tried: it could take for ever, and the interpreter with it. What it matched has tensors.
    """
    value = config.values.get("target_modules")
    if isinstance(value, str) and value:
        return None
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        config.reject("target_modules", "must be names of modules, a regular expression or all-linear", value)
    return tuple(value)
