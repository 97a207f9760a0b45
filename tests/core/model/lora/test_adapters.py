"""Rows with an adapter get what the model with the adapter merged into its weights gives, whoever is beside them."""

import weakref
from pathlib import Path

import gguf
import pytest
import torch
from torch import Tensor

from core.config import ModelConfig
from core.executor.interface import NewRequest
from core.model.architecture import Architecture
from core.model.attention.paged_kv_cache import PagedKVCache
from core.model.lora.adapters import Adapters
from core.model.model import Model
from core.model.registry import load_model
from core.model.request_state import RequestState
from core.model.runner import ModelRunner
from core.model.span import Span
from core.model.step_batch import StepBatch
from core.model.weights.weight_source import ModelLoadError
from tests.core.model.driver import GREEDY, Driver
from tests.core.model.lora.tiny_adapter import ATTENTION, MLP, TinyAdapter
from tests.core.model.reference_cases import ask_case, check_case
from tests.core.model.tiny_model import TINY, TINY_QWEN2, TinyModel, random_tokens
from tests.model_files import SMOLLM2_CASES, find_smollm2

PROMPTS = [random_tokens(20, TINY.vocab_size, seed) for seed in range(4)]


def adapted(folder: Path, max_rank: int = 16) -> tuple[Model, Adapters]:
    adapters = Adapters(max_rank)
    return load_model(ModelConfig(path=folder, quantization="none"), adapters), adapters


def logits_of(
    model: Model, adapters: Adapters, prompts: list[list[int]], keys: list[int | None], chunk: int = 512
) -> list[Tensor]:
    """Of each prompt with its adapter, all in one batch, ``chunk`` tokens of each at a time."""
    cache = PagedKVCache(model.architecture, 64, 16, model.device, model.dtype)
    blocks = iter(range(1, 64))
    requests = [
        RequestState(
            NewRequest(str(i), prompt, len(prompt), GREEDY, 0, [[next(blocks) for _ in range(2)]], 0, lora=key)
        )
        for i, (prompt, key) in enumerate(zip(prompts, keys, strict=True))
    ]
    parts: dict[str, list[Tensor]] = {request.request_id: [] for request in requests}
    for start in range(0, max(map(len, prompts)), chunk):
        spans = [Span(request, start, min(chunk, len(request.token_ids) - start)) for request in requests]
        batch = StepBatch(spans, cache)
        adapters.begin_step((span.request.lora, span.num_tokens) for span in batch.spans)
        with torch.inference_mode():
            hidden = model.forward(model.embed(batch.token_ids), batch.positions, batch.attention)
            logits = model.logits(hidden)
        for span, end in zip(batch.spans, batch.ends, strict=True):
            parts[span.request.request_id].append(logits[end - span.num_tokens : end])
    return [torch.cat(rows) for rows in parts.values()]


@pytest.mark.parametrize("chunk", [512, 1, 7], ids=["whole", "one-by-one", "chunks"])
@pytest.mark.parametrize("architecture", [TINY, TINY_QWEN2], ids=["llama", "qwen2"])
def test_a_batch_with_several_adapters_is_as_their_merged_models(
    tmp_path: Path, architecture: Architecture, chunk: int
) -> None:
    """Adapters a and b on other modules and of other ranks, and a request without one, in the same steps."""
    base = TinyModel(architecture)
    a = TinyAdapter(base, seed=1)
    b = TinyAdapter(base, ("q_proj", "up_proj"), rank=3, seed=2, use_rslora=True)
    base.write_safetensors(tmp_path)
    model, adapters = adapted(tmp_path)
    adapters.load(1, a.write(tmp_path / "a"))
    adapters.load(2, b.write(tmp_path / "b"))
    found = logits_of(model, adapters, PROMPTS, [1, None, 2, 1], chunk)
    expected = [a.merged_into(base), base, b.merged_into(base), a.merged_into(base)]
    for logits, merged, prompt in zip(found, expected, PROMPTS, strict=True):
        torch.testing.assert_close(logits.double(), merged.logits(prompt), rtol=1e-4, atol=1e-4)
    assert (found[0] - base.logits(PROMPTS[0])).abs().max() > 0.1


def test_results_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    """A request's logits beside others with and without adapters are those it has alone."""
    base = TinyModel(TINY)
    base.write_safetensors(tmp_path)
    model, adapters = adapted(tmp_path)
    for key in (1, 2):
        adapters.load(key, TinyAdapter(base, seed=key).write(tmp_path / str(key)))
    keys: list[int | None] = [1, None, 2, 1]
    together = logits_of(model, adapters, PROMPTS, keys)
    for prompt, key, logits in zip(PROMPTS, keys, together, strict=True):
        (alone,) = logits_of(model, adapters, [prompt], [key])
        torch.testing.assert_close(logits, alone, rtol=1e-5, atol=1e-5)


def test_an_adapter_of_a_gguf_model(tmp_path: Path) -> None:
    """Whose q and k llama.cpp has permuted: adapters are in the order of Hugging Face."""
    base = TinyModel(TINY)
    base.write_gguf(tmp_path / "tiny.gguf", gguf.GGMLQuantizationType.F32)
    adapter = TinyAdapter(base, ATTENTION)
    model, adapters = adapted(tmp_path / "tiny.gguf")
    adapters.load(7, adapter.write(tmp_path / "a"))
    (logits,) = logits_of(model, adapters, PROMPTS[:1], [7])
    expected = adapter.merged_into(base).logits(PROMPTS[0])
    torch.testing.assert_close(logits.double(), expected, rtol=1e-4, atol=1e-4)


def test_half_precision_stays_near(tmp_path: Path) -> None:
    base = TinyModel(TINY)
    base.write_safetensors(tmp_path)
    adapters = Adapters(16)
    model = load_model(ModelConfig(path=tmp_path, dtype="bfloat16"), adapters)
    adapter = TinyAdapter(base, MLP)
    adapters.load(1, adapter.write(tmp_path / "a"))
    (logits,) = logits_of(model, adapters, PROMPTS[:1], [1])
    expected = adapter.merged_into(base).logits(PROMPTS[0])
    assert torch.nn.functional.cosine_similarity(logits.double(), expected).min() > 0.99


def test_an_adapter_of_zeros_gives_the_reference_tokens(tmp_path: Path) -> None:
    """Of the real model, every case, beside one without an adapter."""
    model, adapters = adapted(find_smollm2())
    a = model.architecture
    adapter = TinyAdapter(TinyModel(TINY), MLP)
    adapter.tensors = {
        f"base_model.model.model.layers.{layer}.mlp.{module}_proj.lora_{side}.weight": torch.zeros(shape)
        for layer in range(a.num_layers)
        for module, side, shape in [
            ("up", "A", (4, a.hidden_size)),
            ("up", "B", (a.intermediate_size, 4)),
            ("down", "A", (4, a.intermediate_size)),
            ("down", "B", (a.hidden_size, 4)),
        ]
    }
    adapters.load(1, adapter.write(tmp_path))
    asks = [ask_case(case) for case in SMOLLM2_CASES]
    for ask in asks[1:]:
        ask.lora = 1
    Driver(ModelRunner(model, adapters)).run(asks, 8)
    for case, ask in zip(SMOLLM2_CASES, asks, strict=True):
        check_case(case, ask)


def test_what_is_removed_is_out_of_memory(tmp_path: Path) -> None:
    """Though the last step ran with it."""
    base = TinyModel(TINY)
    base.write_safetensors(tmp_path)
    model, adapters = adapted(tmp_path)
    adapters.load(1, TinyAdapter(base).write(tmp_path / "a"))
    logits_of(model, adapters, PROMPTS[:1], [1])
    held = [weakref.ref(weights.down) for weights in adapters._loaded[1].values()]
    adapters.remove(1)
    assert {reference() for reference in held} == {None}


def test_an_adapter_that_was_dropped_comes_back_with_the_model(tmp_path: Path) -> None:
    """From its folder, under its key."""
    base = TinyModel(TINY)
    base.write_safetensors(tmp_path)
    model, adapters = adapted(tmp_path)
    adapters.load(5, TinyAdapter(base).write(tmp_path / "a"))
    before = logits_of(model, adapters, PROMPTS[:1], [5])
    adapters.drop()
    assert adapters.num_modules == 0
    again = load_model(ModelConfig(path=tmp_path), adapters)
    adapters.restore()
    torch.testing.assert_close(logits_of(again, adapters, PROMPTS[:1], [5]), before)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"model.layers.9.mlp.up_proj": (96, 64)}, r"module model\.layers\.9\.mlp\.up_proj is no linear layer"),
        ({"model.layers.0.mlp.up_proj": (96, 32)}, r"up_proj maps 32 values to 96, in the model 64 to 96"),
    ],
    ids=["unknown-module", "other-shape"],
)
def test_what_does_not_fit_the_model_is_told_and_nothing_is_kept(
    tmp_path: Path, change: dict[str, tuple[int, int]], complaint: str
) -> None:
    """With the file, the module and the sizes."""
    TinyModel(TINY).write_safetensors(tmp_path)
    model, adapters = adapted(tmp_path)
    adapter = TinyAdapter(TinyModel(TINY), MLP)
    for module, (out_size, in_size) in change.items():
        adapter.tensors[f"base_model.model.{module}.lora_A.weight"] = torch.zeros(4, in_size)
        adapter.tensors[f"base_model.model.{module}.lora_B.weight"] = torch.zeros(out_size, 4)
    with pytest.raises(ModelLoadError, match=rf"adapter_model\.safetensors: .*{complaint}"):
        adapters.load(1, adapter.write(tmp_path / "a"))
    assert repr(adapters) == f"Adapters(0 loaded, {adapters.num_modules} modules to adapt)"
    adapters.drop()
    adapters.restore()
    assert model.architecture == TINY
