"""Model families by name, and how a configuration becomes a loaded model."""

import logging
from collections.abc import Iterable

import torch

from core.config import ModelConfig
from core.model.attention.backends import BACKENDS
from core.model.decoder.decoder import Decoder
from core.model.decoder.layer_loader import LayerLoader
from core.model.device import find_device
from core.model.dtypes import find_dtype
from core.model.linear import QUANTIZATIONS
from core.model.lora.adapters import Adapters
from core.model.model import Model
from core.model.sharding import Sharding
from core.model.tensor_group import TensorGroup
from core.model.threads import num_threads
from core.model.weights.open_weights import is_left_to_transformers, open_weights
from core.native import find_kernels
from core.native.kernels import Kernels

logger = logging.getLogger(__name__)


def load_model(config: ModelConfig, adapters: Adapters | None = None, group: TensorGroup | None = None) -> Model:
    """``adapters`` may then load for it. ``group``: the ranks that share it, each of which loads its part.

    Raises ValueError for a setting that is not allowed, ModelLoadError for what is wrong with the files.
    """
    _check_choice("quantization", config.quantization, QUANTIZATIONS)
    _check_choice("attention_backend", config.attention_backend, BACKENDS)
    device, dtype = find_device(config.device), find_dtype(config.dtype)
    kernels = _find_kernels(config, device, dtype)
    if is_left_to_transformers(config.path):
        return _load_transformers_model(config, device, dtype, adapters, group)
    source = open_weights(config.path)
    config.served_len(source.architecture.max_model_len)
    if group is not None:
        sharding = Sharding(source.architecture, group)
        source = sharding.cut_source(source)
        if adapters is not None:
            adapters.cut_pair = sharding.cut_pair
    return Decoder(LayerLoader(source, device, dtype, adapters, kernels, config.quantization == "auto"))


def _find_kernels(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Kernels | None:
    """Those for float32 on a CPU, with as many threads as torch has."""
    kernels = find_kernels(config.kernels) if (device.type, dtype) == ("cpu", torch.float32) else None
    if kernels is not None:
        kernels.set_num_threads(num_threads())
        logger.info("kernels: %s, %d threads", kernels.__name__.rpartition("_")[2], num_threads())
    return kernels


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
