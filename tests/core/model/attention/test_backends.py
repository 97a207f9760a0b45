"""Who computes attention: our kernels where they can, torch's operations elsewhere; and why not the one asked for."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from core.config import ModelConfig
from core.model.architecture import Architecture
from core.model.attention.backends import find_backend
from core.model.attention.native_attention import NativeKVCache
from core.model.attention.paged_kv_cache import PagedKVCache
from core.model.lora.adapters import Adapters
from core.model.model import Model
from core.model.registry import load_model
from core.native import find_kernels
from tests.core.executor.rank_threads import on_each_rank
from tests.core.model.steps import Steps
from tests.core.model.tiny_model import TINY, TINY_NATIVE, TinyModel, random_tokens

pytestmark = pytest.mark.skipif(find_kernels() is None, reason="no kernels for this machine")
PROMPTS = [random_tokens(length, TINY.vocab_size, length) for length in (40, 9)]
TOLERANCE = 2e-3
"""Of logits of about 20, through three layers."""
NOT_ALONE = "the model is not computed by native kernels alone"


def load(folder: Path, architecture: Architecture = TINY_NATIVE, **settings: Any) -> Model:
    TinyModel(architecture).write_safetensors(folder)
    return load_model(ModelConfig(path=folder, **settings))


def check_torch_attends(model: Model, block_size: int, reason: str) -> None:
    """By itself, to the right logits; whoever insists is told why not."""
    with pytest.raises(ValueError, match=f"attention_backend must not be native where {reason}"):
        find_backend("native", model, block_size)
    steps = Steps(model, PROMPTS, block_size)
    assert isinstance(steps.cache, PagedKVCache)
    for counts in ({0: 30}, {0: 9, 1: 9}, {0: 1}):
        steps.step(counts)
    assert not steps.left
    tiny = TinyModel(
        replace(TINY_NATIVE, hidden_size=model.architecture.hidden_size, head_size=model.architecture.head_size)
    )
    for logits, prompt in zip(steps.logits(), PROMPTS, strict=True):
        torch.testing.assert_close(logits.double(), tiny.logits(prompt), atol=TOLERANCE, rtol=0)


def test_native_where_all_fits(tmp_path: Path) -> None:
    """By itself, and asked for."""
    model = load(tmp_path)
    for name in ("auto", "native"):
        assert isinstance(find_backend(name, model, 16).make_cache(2), NativeKVCache)
    assert isinstance(find_backend("torch", model, 16).make_cache(2), PagedKVCache)


@pytest.mark.parametrize(
    ("architecture", "settings", "block_size", "reason"),
    [
        (TINY_NATIVE, {}, 8, "block_size is no multiple of 16, but 8"),
        (TINY_NATIVE, {"kernels": "torch"}, 16, NOT_ALONE),
        (TINY, {}, 16, NOT_ALONE),
    ],
    ids=["small blocks", "no kernels", "half a register"],
)
def test_torch_where_a_step_cannot_be_native(
    tmp_path: Path, architecture: Architecture, settings: Mapping[str, Any], block_size: int, reason: str
) -> None:
    """Blocks of the cache that are no whole registers, or heads; with native linears all the same."""
    check_torch_attends(load(tmp_path, architecture, **settings), block_size, reason)


def test_torch_where_adapters_may_come(tmp_path: Path) -> None:
    """Which add to what the linears give."""
    TinyModel(TINY_NATIVE).write_safetensors(tmp_path)
    check_torch_attends(load_model(ModelConfig(path=tmp_path), Adapters(8)), 16, NOT_ALONE)


def test_torch_where_ranks_share_a_model(tmp_path: Path) -> None:
    """Whose results are summed between two linears."""
    TinyModel(TINY_NATIVE).write_safetensors(tmp_path)

    def reason(group: Any) -> str:
        model = load_model(ModelConfig(path=tmp_path), group=group)
        assert isinstance(find_backend("auto", model, 16).make_cache(2), PagedKVCache)
        with pytest.raises(ValueError, match="must not be native") as refused:
            find_backend("native", model, 16)
        return str(refused.value)

    assert all(NOT_ALONE in told for told in on_each_rank(2, reason))


def test_torch_in_other_dtypes(tmp_path: Path) -> None:
    """The kernels' floats have 32 bits."""
    model = load(tmp_path, dtype="bfloat16")
    assert isinstance(find_backend("auto", model, 16).make_cache(2), PagedKVCache)
    with pytest.raises(ValueError, match=NOT_ALONE):
        find_backend("native", model, 16)
