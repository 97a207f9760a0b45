"""Random adapters of the small random model: as PEFT saves them, and merged into the model by the book."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.core.model.tiny_model import TinyModel

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


class TinyAdapter:
    """``tensors`` by PEFT's names; of every module of ``model`` whose name ends in one of ``targets``."""

    def __init__(
        self, model: TinyModel, targets: tuple[str, ...] = ATTENTION + MLP, rank: int = 4, seed: int = 0, **config: Any
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.config = {
            "peft_type": "LORA",
            "r": rank,
            "lora_alpha": 8,
            "target_modules": list(targets),
            "bias": "none",
            **config,
        }
        self.tensors: dict[str, Tensor] = {}
        for name, weight in model.weights.items():
            module = name.removesuffix(".weight")
            if module.endswith(targets):
                stem = f"base_model.model.{module}"
                self.tensors[f"{stem}.lora_A.weight"] = torch.randn(rank, weight.shape[1], generator=generator) * 0.1
                self.tensors[f"{stem}.lora_B.weight"] = torch.randn(weight.shape[0], rank, generator=generator) * 0.1

    @property
    def scale(self) -> float:
        rank = self.config["r"]
        return float(self.config["lora_alpha"] / (rank**0.5 if self.config.get("use_rslora") else rank))

    def write(self, folder: Path) -> Path:
        """Into ``folder``, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "adapter_config.json").write_text(json.dumps(self.config))
        save_file(self.tensors, folder / "adapter_model.safetensors")
        return folder

    def merged_into(self, model: TinyModel) -> TinyModel:
        """A copy of ``model`` whose own weights do what this adapter adds."""
        merged = deepcopy(model)
        for name, down in self.tensors.items():
            if name.endswith(".lora_A.weight"):
                module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
                up = self.tensors[name.replace("lora_A", "lora_B")]
                merged.weights[f"{module}.weight"] = merged.weights[f"{module}.weight"] + self.scale * (up @ down)
        return merged
