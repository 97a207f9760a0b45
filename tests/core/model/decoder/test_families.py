"""Every family of the decoder against transformers in float32, and out of GGUF against safetensors."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as Q
from safetensors.torch import save_file

from core.config import ModelConfig
from core.model.decoder.decoder import Decoder
from core.model.model import Model
from core.model.registry import load_model
from tests.core.model.forward import logits_of
from tests.core.model.hf.tiny_transformers import logits_by_transformers, write_model
from tests.core.model.lora.test_adapters import adapted
from tests.core.model.lora.test_adapters import logits_of as adapted_logits
from tests.core.model.lora.tiny_adapter import ATTENTION, MLP, TinyAdapter
from tests.core.model.tiny_families import TINY_FAMILIES, WINDOW, TinyFamily, write_gguf
from tests.core.model.tiny_model import random_tokens

PROMPT = random_tokens(3 * WINDOW, 160)
"""Far beyond the sliding window."""
TOLERANCE = 1e-4
"""Of logits of about 5: float32 against float32 through three layers."""
OF_GGUF = {name: tiny for name, tiny in TINY_FAMILIES.items() if tiny.gguf_arch is not None}


def load(path: Path) -> Model:
    model = load_model(ModelConfig(path=path))
    assert isinstance(model, Decoder)
    return model


@pytest.mark.parametrize("tiny", TINY_FAMILIES.values(), ids=TINY_FAMILIES)
def test_logits_are_those_of_transformers(tmp_path: Path, tiny: TinyFamily) -> None:
    """Of every position: in one pass, in chunks across blocks and windows, and token by token."""
    expected = logits_by_transformers(tiny.write(tmp_path), PROMPT)
    model = load(tmp_path)
    for chunk in (512, 7, 1):
        torch.testing.assert_close(logits_of(model, PROMPT, chunk), expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("kind", [Q.F32, Q.F16, Q.BF16], ids=lambda kind: kind.name)
@pytest.mark.parametrize("tiny", OF_GGUF.values(), ids=OF_GGUF)
def test_a_gguf_gives_the_logits_of_safetensors(tmp_path: Path, tiny: TinyFamily, kind: Q) -> None:
    """To the bit: both are float32 maths on the same float32 weights."""
    model = tiny.write(tmp_path)
    dtype = {Q.F32: torch.float32, Q.F16: torch.float16, Q.BF16: torch.bfloat16}[kind]
    for weight in model.parameters():
        if weight.ndim > 1:
            weight.data = weight.data.to(dtype).float()
    model.save_pretrained(tmp_path)
    assert tiny.gguf_arch is not None
    write_gguf(model, tiny.gguf_arch, tmp_path / "tiny.gguf", kind)
    assert torch.equal(logits_of(load(tmp_path / "tiny.gguf"), PROMPT), logits_of(load(tmp_path), PROMPT))


@pytest.mark.parametrize("name", ["gemma2", "gemma3_text"])
def test_bfloat16_stays_as_near_as_transformers_does(tmp_path: Path, name: str) -> None:
    """Embedding scale, norms, soft-caps and windows in bfloat16: no farther from float32 than twice its distance."""
    model = TINY_FAMILIES[name].write(tmp_path)
    exact = logits_by_transformers(model, PROMPT)
    theirs = (logits_by_transformers(model.to(torch.bfloat16), PROMPT) - exact).square().mean()
    ours = (logits_of(load_model(ModelConfig(path=tmp_path, dtype="bfloat16")), PROMPT) - exact).square().mean()
    assert ours < 4 * theirs


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."], ids=["transformers4", "5"])
def test_the_language_model_of_one_that_sees_images_is_served(tmp_path: Path, prefix: str) -> None:
    """Without what it sees with."""
    model = TINY_FAMILIES["gemma3_text"].write(tmp_path)
    expected = logits_of(load(tmp_path), PROMPT)
    text_config = json.loads((tmp_path / "config.json").read_text())
    weights = {
        name.replace("model.", prefix, 1): weight for name, weight in model.model.state_dict(prefix="model.").items()
    }
    save_file({**weights, "vision_tower.patches.weight": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text_config}))
    assert torch.equal(logits_of(load(tmp_path), PROMPT), expected)


FULL = {"layer_types": ["full_attention"] * 3}


@pytest.mark.parametrize(
    ("family", "settings", "targets"),
    [
        ("qwen3", {"head_dim": 16}, ATTENTION + MLP),
        ("gemma3_text", {"head_dim": 16, **FULL}, ATTENTION + MLP),
        ("phi3", {"sliding_window": None}, ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")),
    ],
)
def test_an_adapter_gives_what_transformers_gives_with_it_merged(
    tmp_path: Path, family: str, settings: dict[str, Any], targets: tuple[str, ...]
) -> None:
    """Also on fused projections, which adapters name as the checkpoint does."""
    written = write_model(tmp_path, family, **settings)
    adapter = TinyAdapter(SimpleNamespace(weights=written.state_dict()), targets)
    model, adapters = adapted(tmp_path)
    adapters.load(1, adapter.write(tmp_path / "a"))
    found = adapted_logits(model, adapters, [PROMPT[:20]] * 2, [1, None])
    plain = logits_by_transformers(written, PROMPT[:20])
    for name, weight in written.state_dict().items():
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{stem}.lora_A.weight" in adapter.tensors:
            added = adapter.tensors[f"{stem}.lora_B.weight"] @ adapter.tensors[f"{stem}.lora_A.weight"]
            weight.add_(adapter.scale * added)
    for logits, expected in zip(found, [logits_by_transformers(written, PROMPT[:20]), plain], strict=True):
        torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=0)
    assert (found[0] - found[1]).abs().max() > 0.1
