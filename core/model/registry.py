"""Model families by name, and how a configuration becomes a loaded model."""

from collections.abc import Iterable

from core.config import ModelConfig
from core.model.device import find_device
from core.model.dtypes import find_dtype
from core.model.layer_loader import LayerLoader
from core.model.linear import QUANTIZATIONS
from core.model.llama import Llama
from core.model.lora.adapters import Adapters
from core.model.model import Model
from core.model.open_weights import open_weights
from core.model.sharding import shard_source
from core.model.tensor_group import TensorGroup

_MODELS = {"llama": Llama, "qwen2": Llama}


def load_model(config: ModelConfig, adapters: Adapters | None = None, group: TensorGroup | None = None) -> Model:
    """``adapters`` may then load for it. ``group``: the ranks that share it, each of which loads its part.

    Raises ValueError for a setting that is not allowed, ModelLoadError for what is wrong with the files.
    """
    _check_choice("quantization", config.quantization, QUANTIZATIONS)
    device, dtype = find_device(config.device), find_dtype(config.dtype)
    source = open_weights(config.path)
    limit = source.architecture.max_model_len
    if config.max_model_len is not None and not 1 <= config.max_model_len <= limit:
        raise ValueError(f"max_model_len must be in [1, {limit}], the model's own limit, got {config.max_model_len}")
    if group is not None:
        source = shard_source(source, group)
    return _MODELS[source.architecture.family](LayerLoader(source, device, dtype, adapters))


def _check_choice(field: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{field} must be one of {', '.join(allowed)}, got {value!r}")
