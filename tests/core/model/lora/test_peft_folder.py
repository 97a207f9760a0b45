"""What a PEFT folder must be to be taken; every refusal names the file, the field and the bound."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from core.model.lora.peft_folder import PeftFolder
from core.model.weights.weight_source import ModelLoadError
from tests.core.model.lora.tiny_adapter import TinyAdapter
from tests.core.model.tiny_model import TINY, TinyModel

MODEL = TinyModel(TINY)
Q0 = "base_model.model.model.layers.0.self_attn.q_proj"


def test_pairs_by_module_and_scaled(tmp_path: Path) -> None:
    """``up`` is multiplied by lora_alpha / r, with rslora by lora_alpha / sqrt(r)."""
    for use_rslora, scale in ((False, 2.0), (True, 4.0)):
        adapter = TinyAdapter(MODEL, ("q_proj",), use_rslora=use_rslora)
        pairs = PeftFolder(adapter.write(tmp_path), 16).pairs
        assert list(pairs) == [f"model.layers.{i}.self_attn.q_proj" for i in range(TINY.num_layers)]
        pair = pairs["model.layers.0.self_attn.q_proj"]
        assert torch.equal(pair.down, adapter.tensors[f"{Q0}.lora_A.weight"])
        assert torch.equal(pair.up, scale * adapter.tensors[f"{Q0}.lora_B.weight"])


@pytest.mark.parametrize(
    "targets", ["all-linear", r".*\.(q|v)_proj", r"(([a-z._0-9])+)+!", "(", ["q_proj"], ["self_attn.q_proj", "x"]]
)
def test_targets_may_be_names_a_pattern_or_everything(tmp_path: Path, targets: Any) -> None:
    """A pattern is never tried, whatever it is: some would take for ever."""
    adapter = TinyAdapter(MODEL, ("q_proj",), target_modules=targets)
    assert len(PeftFolder(adapter.write(tmp_path), 16).pairs) == TINY.num_layers


def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    adapter = TinyAdapter(MODEL, ("q_proj",))
    adapter.tensors = {name: tensor.bfloat16() for name, tensor in adapter.tensors.items()}
    pairs = PeftFolder(adapter.write(tmp_path), 16).pairs
    assert {pair.down.dtype for pair in pairs.values()} == {torch.float32}


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"r": 32}, "r must be at most 16, which is --max-lora-rank, got 32"),
        ({"r": 0}, r"r must be an integer in \[1, .*\], got 0"),
        ({"lora_alpha": "x"}, "lora_alpha must be a number"),
        ({"peft_type": "IA3"}, "peft_type must be one of LORA, got 'IA3'"),
        ({"bias": "all"}, "bias must be one of none, got 'all'"),
        ({"use_dora": True}, r"use_dora must be empty \(DoRA scales the base model's weights too\), got True"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save must be empty"),
        ({"rank_pattern": {"q_proj": 8}}, "rank_pattern must be empty"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights must not be one that changes the base model"),
        ({"target_modules": ""}, "target_modules must be names of modules"),
        ({"target_modules": []}, "target_modules must be names of modules"),
        ({"target_modules": None}, "target_modules must be names of modules"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_config_that_is_more_than_lora_is_refused(tmp_path: Path, config: dict[str, Any], complaint: str) -> None:
    folder = TinyAdapter(MODEL, ("q_proj",), **config).write(tmp_path)
    with pytest.raises(ModelLoadError, match=rf"adapter_config\.json: {complaint}"):
        PeftFolder(folder, 16)


@pytest.mark.parametrize(
    ("tensors", "complaint"),
    [
        ({f"{Q0}.lora_A.weight": None}, r"module model\.layers\.0\.self_attn\.q_proj has lora_A missing"),
        ({f"{Q0}.lora_B.weight": torch.zeros(64, 5)}, r"has shapes \[4, 64\] and \[64, 5\], .* r = 4"),
        ({f"{Q0}.lora_A.weight": torch.full((4, 64), torch.inf)}, "holds values that are not finite"),
        (
            {f"{Q0}.lora_A.weight": torch.zeros(4, 64, dtype=torch.int8)},
            r"must have matrices of floats, got torch\.i",
        ),
        ({"base_model.model.lm_head.lora_A.weight": torch.zeros(4, 64)}, "adapts the vocabulary"),
        ({"base_model.model.model.embed_tokens.lora_embedding_A": torch.zeros(4, 64)}, "adapts the vocabulary"),
        ({f"{Q0}.lora_magnitude_vector.weight": torch.zeros(64)}, "is not lora_A or lora_B of a linear layer"),
        ({f"{Q0[:-6]}k_proj.lora_A.weight": torch.zeros(4, 64)}, "k_proj is none of the config's target_modules"),
    ],
    ids=["missing", "rank", "infinite", "integers", "head", "embedding", "other", "untargeted"],
)
def test_tensors_that_are_no_pairs_are_refused(
    tmp_path: Path, tensors: dict[str, torch.Tensor | None], complaint: str
) -> None:
    adapter = TinyAdapter(MODEL, ("q_proj",))
    changed = {**adapter.tensors, **tensors}
    adapter.tensors = {name: tensor for name, tensor in changed.items() if tensor is not None}
    with pytest.raises(ModelLoadError, match=rf"adapter_model\.safetensors: .*{complaint}"):
        PeftFolder(adapter.write(tmp_path), 16)


def test_missing_and_broken_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"nowhere/adapter_config\.json: cannot be read: .*No such file"):
        PeftFolder(tmp_path / "nowhere", 16)
    folder = TinyAdapter(MODEL, ("q_proj",)).write(tmp_path)
    (folder / "adapter_model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(ModelLoadError, match=r"adapter_model\.safetensors: cannot be read"):
        PeftFolder(folder, 16)
    (folder / "adapter_config.json").write_text(json.dumps([]))
    with pytest.raises(ModelLoadError, match="must be a JSON object, got list"):
        PeftFolder(folder, 16)


def test_a_config_that_is_no_file_holds_nobody_up(tmp_path: Path) -> None:
    """Nor one that is as large as the memory."""
    os.mkfifo(tmp_path / "adapter_config.json")
    with pytest.raises(ModelLoadError, match=r"adapter_config\.json: cannot be read: it is not a regular file"):
        PeftFolder(tmp_path, 16)
    (tmp_path / "adapter_config.json").unlink()
    with (tmp_path / "adapter_config.json").open("wb") as file:
        file.truncate((1 << 20) + 1)
    with pytest.raises(ModelLoadError, match="must have at most 1048576 bytes, got 1048577"):
        PeftFolder(tmp_path, 16)
