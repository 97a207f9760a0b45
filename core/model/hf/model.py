"""Any decoder that transformers defines, over the paged KV cache."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging
from transformers.utils.quantization_config import Mxfp4Config

from core.config import ModelConfig
from core.model.architecture import ModelShape
from core.model.attention.native_attention import NativeAttention
from core.model.hf.attention import NAME, CausalMask, Layer, StepReceiver
from core.model.hf.config import longest_context, read_config
from core.model.hf.linears import EXPERTS, adapt_linears, replace_linears
from core.model.hf.parts import ModelParts
from core.model.hf.probe import Probed, UnservableError, check_unchanged, probe, run_apart
from core.model.hf.rotation import settle_rotation
from core.model.lora.adapters import Adapters
from core.model.model import StepAttention
from core.model.weights.load_progress import logged_wait
from core.model.weights.weight_source import ModelLoadError

logger = logging.getLogger(__name__)

transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]


class TransformersModel:
    """Embedding, layers and head are transformers' own, attention is ours. Fulfils ``core.model.model.Model``."""

    def __init__(
        self, parts: ModelParts, layers: Mapping[nn.Module, Layer], shape: ModelShape, num_weight_bytes: int
    ) -> None:
        self._parts, self._layers = parts, layers
        self.architecture = shape
        self.device: torch.device = parts.model.device
        self.dtype: torch.dtype = parts.model.dtype
        self.num_weight_bytes = num_weight_bytes
        self.kv_dtype = self.dtype
        self.native_kernels = None

    def embed(self, token_ids: Tensor) -> Tensor:
        return self._parts.embed(token_ids.to(self.device)).to(self.dtype)

    def forward(self, inputs: Tensor, positions: Tensor, attention: StepAttention) -> Tensor:
        assert not isinstance(attention, NativeAttention), "it has no native kernels"
        return self._parts.hidden(inputs, positions, StepReceiver(attention, self._layers))

    def logits(self, hidden: Tensor) -> Tensor:
        return self._parts.logits(hidden)


def load_transformers_model(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, adapters: Adapters | None = None
) -> TransformersModel:
    """Of a folder with ``config.json`` and safetensors. ``adapters`` may then load for it.

    Raises ModelLoadError for a model that cannot be served, with the reason; ValueError for a ``max_model_len`` that is
    out of bounds.
    """
    path = config.path / "config.json"
    described = read_config(config.path)
    longest = longest_context(path, described)
    limit = config.served_len(longest)
    try:
        with logged_wait(f"loading and trying out a {described.model_type} of transformers"):
            made = _make(_load(config.path, described, device, dtype), longest, limit, adapters)
    except UnservableError as error:
        raise ModelLoadError(f"{path}: model_type {described.model_type} cannot be served: {error}") from error
    logger.info("a %s by transformers: %d layers", described.model_type, made.architecture.num_layers)
    return made


def _make(model: Any, longest: int, limit: int, adapters: Adapters | None) -> TransformersModel:
    """Raises UnservableError."""
    try:
        return _probed(model, longest, limit, adapters)
    except UnservableError:
        raise
    except Exception as error:  # whatever a family's code does where it meets ours
        cause = "it computes with attention masks itself" if CausalMask.__name__ in str(error) else "its code fails"
        raise UnservableError(f"{cause}: {type(error).__name__}: {error}") from error


@torch.inference_mode()
def _probed(model: Any, longest: int, limit: int, adapters: Adapters | None) -> TransformersModel:
    settle_rotation(model, limit)
    parts = ModelParts(model)
    found = probe(parts, limit)
    num_replaced_bytes = 0
    if (on_cpu := model.device.type == "cpu") or adapters is not None:
        num_replaced_bytes = replace_linears(model, with_experts=on_cpu)
        check_unchanged(parts, found)
    if adapters is not None:
        adapt_linears(model, adapters, lambda: run_apart(parts))
    shape = _shape(model.config.model_type, found, longest)
    return TransformersModel(parts, found.layers, shape, num_replaced_bytes + _num_bytes(model))


def _shape(family: str, found: Probed, longest: int) -> ModelShape:
    layers = list(found.layers.values())
    return ModelShape(
        family=family,
        vocab_size=found.vocab_size,
        hidden_size=found.hidden_size,
        num_layers=len(layers),
        num_kv_heads=layers[0].num_kv_heads,
        head_size=layers[0].head_size,
        max_model_len=longest,
        windows=tuple(layer.rule.window for layer in layers),
    )


def _load(folder: Path, config: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Raises ModelLoadError, UnservableError."""
    quantized = getattr(config, "quantization_config", None) is not None
    # Its annotations do not know that there is a report as well.
    from_pretrained: Any = AutoModelForCausalLM.from_pretrained
    try:
        model, report = from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation=NAME,
            experts_implementation=EXPERTS if device.type == "cpu" else None,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            **({"quantization_config": Mxfp4Config(dequantize=True)} if quantized else {}),
        )
    except Exception as error:  # a constructor of a family raises what it likes
        if isinstance(error, KeyError) and error.args == (NAME,):
            raise UnservableError("its attention does not go through transformers' attention interface") from error
        raise ModelLoadError(f"{folder}: transformers cannot load it: {type(error).__name__}: {error}") from error
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if names := sorted(map(str, report[kind])):
            fault = kind.removesuffix("_keys")
            raise ModelLoadError(f"{folder}: {fault} tensor {names[0]} ({len(names)} in all)")
    return model.to(device)


def _num_bytes(model: nn.Module) -> int:
    """Of all tensors, those with several names once."""
    storages = [tensor.untyped_storage() for tensor in (*model.parameters(), *model.buffers())]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
