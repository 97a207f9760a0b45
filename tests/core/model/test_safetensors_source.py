"""What a Hugging Face folder says about its model, and its tensors."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from core.model.architecture import Llama3Scaling, Rope
from core.model.safetensors_source import open_safetensors
from core.model.weight_source import ModelLoadError
from tests.core.model.tiny_model import TINY, TINY_QWEN2, TinyModel

COUNT = "must be an integer in .1, 2147483647."
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize("architecture", [TINY, TINY_QWEN2, replace(TINY, head_size=32)])
def test_the_architecture_is_read(tmp_path: Path, architecture: Any) -> None:
    """All of it, out of config.json."""
    TinyModel(architecture).write_safetensors(tmp_path, head_dim=architecture.head_size)
    assert open_safetensors(tmp_path).architecture == architecture


@pytest.mark.parametrize(
    ("config", "rope"),
    [
        ({}, Rope(1000.0)),
        ({"rope_theta": None}, Rope(10_000.0)),
        ({"rope_scaling": None}, Rope(1000.0)),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, Rope(1000.0, linear_factor=2.0)),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3}}, Rope(1000.0, llama3=Llama3Scaling(8.0, 1.0, 4.0, 32))),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}}, Rope(5.0)),
    ],
)
def test_rotary_settings_are_read_in_every_spelling(tmp_path: Path, config: dict[str, Any], rope: Rope) -> None:
    """Old, newer, and that of transformers 5."""
    TinyModel(TINY).write_safetensors(tmp_path, **config)
    assert open_safetensors(tmp_path).architecture.rope == rope


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "mamba"}, "model_type must be one of llama, qwen2, got 'mamba'"),
        ({"model_type": None}, "model_type must be one of llama, qwen2, got None"),
        ({"hidden_size": "64"}, f"hidden_size {COUNT}, got '64'"),
        ({"hidden_size": 64.5}, f"hidden_size {COUNT}, got 64.5"),
        ({"vocab_size": True}, f"vocab_size {COUNT}, got True"),
        ({"num_attention_heads": 0}, f"num_attention_heads {COUNT}, got 0"),
        ({"num_attention_heads": 65}, f"head_dim {COUNT}, got 0"),
        ({"num_hidden_layers": 10**400}, f"num_hidden_layers {COUNT}, got 1000"),
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"rms_norm_eps": [1e-5]}, "rms_norm_eps must be a number > 0 and at most 1e.30, got .1e-05"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be a number > 0 and at most 1e.30, got nan"),
        ({"rope_theta": 10**400}, "rope_theta must be a number > 0 and at most 1e.30, got 1000"),
        ({"rope_scaling": "linear"}, "rope_scaling must be a JSON object, got 'linear'"),
        ({"rope_parameters": [1]}, "rope_parameters must be a JSON object, got .1."),
        ({"hidden_act": "gelu"}, "hidden_act must be one of silu, got 'gelu'"),
        ({"use_sliding_window": True}, "use_sliding_window must be one of False, got True"),
        ({"quantization_config": {"bits": 4}}, "quantization_config must be one of None"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_type must be one of default, linear, llama3, got 'yarn'"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "factor is missing"),
    ],
)
def test_a_config_that_is_not_supported_is_told(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    """With the file, the key, the bound and the value."""
    TinyModel(TINY).write_safetensors(tmp_path, **config)
    with pytest.raises(ModelLoadError, match=rf"config\.json: {message}"):
        open_safetensors(tmp_path)


def test_a_config_without_a_model_type_is_told(tmp_path: Path) -> None:
    """It is not taken for the first family."""
    TinyModel(TINY).write_safetensors(tmp_path)
    config = TinyModel(TINY).config()
    del config["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelLoadError, match=r"config\.json: model_type must be one of llama, qwen2, got None"):
        open_safetensors(tmp_path)


def test_heads_that_do_not_fit_together_are_told(tmp_path: Path) -> None:
    """At the load, not at the first request."""
    TinyModel(TINY).write_safetensors(tmp_path, num_key_value_heads=3)
    with pytest.raises(ModelLoadError, match="4 attention heads cannot share 3 key-value heads evenly"):
        open_safetensors(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "cannot be read"), ("[" * 100_000, "cannot be read"), ("[]", "must be a JSON object, got list")],
)
def test_a_broken_config_is_told(tmp_path: Path, text: str, message: str) -> None:
    """With the file."""
    TinyModel(TINY).write_safetensors(tmp_path)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelLoadError, match=rf"config\.json: {message}"):
        open_safetensors(tmp_path)


def test_a_truncated_file_is_told(tmp_path: Path) -> None:
    """With its name."""
    TinyModel(TINY).write_safetensors(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelLoadError, match=r"model\.safetensors: cannot be read"):
        open_safetensors(tmp_path)


def test_an_integer_tensor_is_told(tmp_path: Path) -> None:
    """Quantized checkpoints of other tools hold such."""
    tiny = TinyModel(TINY)
    tiny.write_safetensors(tmp_path)
    save_file({"qweight": torch.zeros(4, dtype=torch.int32)}, tmp_path / "more.safetensors")
    with pytest.raises(ModelLoadError, match=r"more\.safetensors: tensor qweight has unsupported type I32"):
        open_safetensors(tmp_path)


def test_a_head_that_is_neither_stored_nor_tied_is_told(tmp_path: Path) -> None:
    """It would be made of random numbers elsewhere."""
    TinyModel(TINY).write_safetensors(tmp_path, tie_word_embeddings=False)
    with pytest.raises(ModelLoadError, match=r"tensor lm_head\.weight is missing"):
        open_safetensors(tmp_path)


def test_several_files_and_an_index(tmp_path: Path) -> None:
    """The index decides which files count; frequencies that old checkpoints store are passed over."""
    tiny = TinyModel(TINY)
    (tmp_path / "config.json").write_text(json.dumps(tiny.config()))
    names = sorted(tiny.weights)
    weight_map = {name: f"part{i % 2}.safetensors" for i, name in enumerate(names)}
    for part in set(weight_map.values()):
        weights = {name: tiny.weights[name] for name in names if weight_map[name] == part}
        save_file({**weights, f"{part}.rotary_emb.inv_freq": torch.zeros(8)}, tmp_path / part)
    (tmp_path / "stray.safetensors").write_bytes(b"not even that")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    source = open_safetensors(tmp_path)
    for name, weight in tiny.weights.items():
        assert torch.equal(source.dense(name, tuple(weight.shape)), weight)
    source.check_all_taken()


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ('{"weight_map": {"w": "gone.safetensors"}}', r"gone\.safetensors: cannot be read"),
        ("{}", "not an index"),
        ('{"weight_map": {"w": ["a.safetensors"]}}', "not an index"),
        ('{"weight_map": {"w": 7}}', "not an index"),
        ("[]", "must be a JSON object, got list"),
    ],
)
def test_a_broken_index_is_told(tmp_path: Path, index: str, message: str) -> None:
    """With the file that is missing, or the index itself."""
    TinyModel(TINY).write_safetensors(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ModelLoadError, match=message):
        open_safetensors(tmp_path)


def test_rows_are_looked_up_in_the_files_own_dtype(tmp_path: Path) -> None:
    """bfloat16 rows come as float32, and the file may go away."""
    tiny = TinyModel(TINY)
    tiny.write_safetensors(tmp_path, torch.bfloat16)
    table = open_safetensors(tmp_path).row_table("model.embed_tokens.weight", (160, 64))
    (tmp_path / "model.safetensors").unlink()
    rows = table(torch.tensor([3, 159, 3]))
    assert rows.dtype == torch.float32
    assert torch.equal(rows, tiny.weights["model.embed_tokens.weight"][[3, 159, 3]].bfloat16().float())
