"""Model families by name, and how a configuration becomes a loaded model."""

from collections.abc import Iterable

import torch

from core.config import ModelConfig
from core.model.decoder.decoder import Decoder
from core.model.decoder.layer_loader import LayerLoader
from core.model.device import find_device
from core.model.dtypes import find_dtype
from core.model.linear import QUANTIZATIONS
from core.model.lora.adapters import Adapters
from core.model.model import Model
from core.model.sharding import Sharding
from core.model.tensor_group import TensorGroup
from core.model.weights.open_weights import is_left_to_transformers, open_weights


def load_model(config: ModelConfig, adapters: Adapters | None = None, group: TensorGroup | None = None) -> Model:
    """``adapters`` may then load for it. ``group``: the ranks that share it, each of which loads its part.

    Raises ValueError for a setting that is not allowed, ModelLoadError for what is wrong with the files.
    """
    _check_choice("quantization", config.quantization, QUANTIZATIONS)
    device, dtype = find_device(config.device), find_dtype(config.dtype)
    if is_left_to_transformers(config.path):
        return _load_transformers_model(config, device, dtype, adapters, group)
    source = open_weights(config.path)
    config.served_len(source.architecture.max_model_len)
    if group is not None:
        sharding = Sharding(source.architecture, group)
        source = sharding.cut_source(source)
        if adapters is not None:
            adapters.cut_pair = sharding.cut_pair
    return Decoder(LayerLoader(source, device, dtype, adapters))


def _load_transformers_model(
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    adapters: Adapters | None,
    group: TensorGroup | None,
) -> Model:
    if group is not None:
        raise ValueError(f"tensor_parallel_size must be 1 for a family that transformers computes, got {group.size}")
    # Takes seconds to import, which the families above need not wait for.
    from core.model.hf.model import load_transformers_model

    return load_transformers_model(config, device, dtype, adapters)


def _check_choice(field: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{field} must be one of {', '.join(allowed)}, got {value!r}")
