"""A LoRA adapter out of a folder that PEFT has saved: ``adapter_config.json``, ``adapter_model.safetensors``."""

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from core.model.host import available_memory_bytes
from core.model.lora.peft_config import PeftConfig, read_peft_config
from core.model.weights.regular_file import read_regular_file
from core.model.weights.weight_source import ModelLoadError

WEIGHTS_FILE = "adapter_model.safetensors"
_TENSOR = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])\.weight")
_VOCABULARY = ("lm_head", "embed_tokens", "lora_embedding")
_COPIES = 4
"""How much memory a load takes at most, in sizes of the file: its bytes, its tensors, those in float32, and scaled."""
_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@dataclass(frozen=True)
class LoraPair:
    """What an adapter adds to one linear layer: ``up @ down @ x``, scaled already.

    float32, ``down`` [rank, in_size], ``up`` [out_size, rank].
    """

    down: Tensor
    up: Tensor


class PeftFolder:
    """The pairs of one adapter by the base model's names for its modules, such as model.layers.0.mlp.up_proj.

    Raises ModelLoadError, which names the file and what in it is wrong.
    """

    def __init__(self, folder: Path, max_rank: int) -> None:
        self.path = folder / WEIGHTS_FILE
        config = read_peft_config(folder, max_rank)
        sides = self._by_module(config)
        self.pairs = {module: self._pair(module, config, found) for module, found in sides.items()}
        if not self.pairs:
            raise ModelLoadError(f"{self.path}: holds no tensor")

    def reject(self, module: str, why: str) -> ModelLoadError:
        """The error for what is wrong with ``module`` here."""
        return ModelLoadError(f"{self.path}: module {module:.200} {why}")

    def _by_module(self, config: PeftConfig) -> dict[str, dict[str, Tensor]]:
        sides: dict[str, dict[str, Tensor]] = {}
        for name, tensor in sorted(self._read().items()):
            if any(part in name for part in _VOCABULARY):
                raise ModelLoadError(f"{self.path}: tensor {name:.200} adapts the vocabulary, which is not supported")
            if (match := _TENSOR.fullmatch(name)) is None:
                raise ModelLoadError(f"{self.path}: tensor {name:.200} is not lora_A or lora_B of a linear layer")
            if not config.is_target(match["module"]):
                raise self.reject(match["module"], "is none of the config's target_modules")
            sides.setdefault(match["module"], {})[match["side"]] = tensor
        return sides

    def _read(self) -> dict[str, Tensor]:
        """All at once: a file that shrinks under its mapping would kill the process."""
        content = read_regular_file(self.path, available_memory_bytes() // _COPIES)
        try:
            return load(content)
        except SafetensorError as error:
            raise ModelLoadError(f"{self.path}: cannot be read: {error}") from error

    def _pair(self, module: str, config: PeftConfig, sides: dict[str, Tensor]) -> LoraPair:
        if len(sides) != 2:
            raise self.reject(module, f"has lora_{'B' if 'A' in sides else 'A'} missing")
        down, up = self._checked(module, sides["A"]), self._checked(module, sides["B"])
        if down.shape[0] != config.rank or up.shape[1] != config.rank:
            shapes = f"{list(down.shape)} and {list(up.shape)}"
            raise self.reject(module, f"has shapes {shapes}, which do not agree with r = {config.rank}")
        return LoraPair(down, up * config.scale)

    def _checked(self, module: str, tensor: Tensor) -> Tensor:
        """In float32, and finite: else whatever runs with the adapter would fail, and say nothing of the reason."""
        if tensor.dtype not in _DTYPES or tensor.ndim != 2:
            raise self.reject(module, f"must have matrices of floats, got {tensor.dtype} {list(tensor.shape)}")
        tensor = tensor.float()
        if not tensor.isfinite().all():
            raise self.reject(module, "holds values that are not finite")
        return tensor
