"""The model of the tests as a folder of plain float32 weights: genuine engines do not read its GGUF file."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from safetensors.torch import save_file

from core.model.weights.open_weights import open_weights
from tests.model_files import SMOLLM2_FOLDER, find_smollm2


def write_dense_smollm2(folder: Path) -> Path:
    """SmolLM2 with its tokenizer, about 540 MB; what is complete already is left as it is."""
    weights = folder / "model.safetensors"
    if not weights.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for file in SMOLLM2_FOLDER.glob("*.json"):
            shutil.copy(file, folder)
        source = open_weights(find_smollm2())
        config = json.loads((folder / "config.json").read_text())
        tensors = {name: source.dense(name, shape).contiguous() for name, shape in _shapes(config)}
        source.check_all_taken()
        save_file(tensors, half := weights.with_suffix(".half"), metadata={"format": "pt"})
        half.replace(weights)
    return folder


def _shapes(config: dict[str, int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    of_keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    yield "model.norm.weight", (hidden,)
    for layer in range(config["num_hidden_layers"]):
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"model.layers.{layer}.{name}.weight", (hidden,)
        for name, num_rows in (("q", hidden), ("k", of_keys), ("v", of_keys), ("o", hidden)):
            yield f"model.layers.{layer}.self_attn.{name}_proj.weight", (num_rows, hidden)
        for name in ("gate", "up"):
            yield f"model.layers.{layer}.mlp.{name}_proj.weight", (inner, hidden)
        yield f"model.layers.{layer}.mlp.down_proj.weight", (hidden, inner)
