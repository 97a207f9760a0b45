"""The tensors of a Hugging Face folder."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from core.model.weights.safetensors_source import open_safetensors
from core.model.weights.weight_source import ModelLoadError
from tests.core.model.tiny_model import TINY, TinyModel


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


def test_heads_that_do_not_fit_together_are_told(tmp_path: Path) -> None:
    """At the load, not at the first request."""
    TinyModel(TINY).write_safetensors(tmp_path, num_key_value_heads=3)
    with pytest.raises(ModelLoadError, match="4 attention heads cannot share 3 key-value heads evenly"):
        open_safetensors(tmp_path)


@pytest.mark.parametrize(("key", "name"), [("attention_bias", "self_attn.q_proj"), ("mlp_bias", "mlp.gate_proj")])
def test_biases_that_are_promised_but_not_stored_are_told(tmp_path: Path, key: str, name: str) -> None:
    """As a head is."""
    TinyModel(TINY).write_safetensors(tmp_path, **{key: True})
    with pytest.raises(ModelLoadError, match=rf"tensor model\.layers\.0\.{name}\.bias is missing, and {key} is set"):
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


def test_no_matrix_is_quantized(tmp_path: Path) -> None:
    """They are floats, of whatever size."""
    TinyModel(TINY).write_safetensors(tmp_path)
    source = open_safetensors(tmp_path)
    assert source.affine("model.embed_tokens.weight", (160, 64)) is None
    assert source.affine("model.embed_tokens.weight", (160, 64), range(8)) is None
