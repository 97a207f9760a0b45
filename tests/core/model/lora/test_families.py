"""Adapters of families beside Llama, against transformers with the adapter merged into its weights."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from core.config import ModelConfig
from core.model.lora.adapters import Adapters
from core.model.registry import load_model
from tests.core.model.forward import logits_of
from tests.core.model.hf.tiny_transformers import logits_by_transformers
from tests.core.model.lora.tiny_adapter import ATTENTION, MLP, TinyAdapter
from tests.core.model.tiny_families import TINY_FAMILIES
from tests.core.model.tiny_model import random_tokens

PROMPT = random_tokens(30, 160)
FUSED = ("qkv_proj", "gate_up_proj")
"""As phi3 has them."""


@pytest.mark.parametrize("name", ["llama, biases, a head size of its own", "qwen3", "gemma2", "gemma3_text", "phi3"])
def test_logits_are_those_of_the_merged_model(tmp_path: Path, name: str) -> None:
    """Of every linear layer at once."""
    model = TINY_FAMILIES[name].write(tmp_path)
    base = SimpleNamespace(weights=model.state_dict())
    adapter = TinyAdapter(base, ATTENTION + MLP + FUSED)
    adapters = Adapters(max_rank=16)
    loaded = load_model(ModelConfig(path=tmp_path), adapters)
    assert len(adapter.tensors) == 2 * adapters.num_modules
    adapters.load(1, adapter.write(tmp_path / "adapter"))
    without = logits_of(loaded, PROMPT)
    adapters.begin_step([(1, len(PROMPT))])
    found = logits_of(loaded, PROMPT)
    model.load_state_dict(adapter.merged_into(base).weights)
    torch.testing.assert_close(found, logits_by_transformers(model, PROMPT), atol=2e-4, rtol=0)
    assert (found - without).abs().max() > 0.01
