"""Models that transformers defines, over the paged KV cache, against transformers' own computation of them."""

import gc
import json
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Mxfp4Config

from core.config import ModelConfig
from core.executor.in_process import InProcessExecutor
from core.model.hf.model import load_transformers_model
from core.model.model import Model
from core.model.registry import load_model
from core.model.runner import ModelRunner
from core.model.weights.weight_source import ModelLoadError
from tests.core.model.driver import GREEDY, Ask, Driver
from tests.core.model.forward import logits_of
from tests.core.model.hf.tiny_transformers import logits_by_transformers, write_model
from tests.core.model.tiny_model import random_tokens

PROMPT = random_tokens(40, 160)
TOLERANCE = 1e-4
"""Of logits of about 5: float32 against float32 through three layers."""


def load(folder: Path, **settings: Any) -> Model:
    """Also a family that the core computes itself."""
    return load_transformers_model(ModelConfig(path=folder, **settings), torch.device("cpu"), torch.float32)


@pytest.mark.parametrize(
    "family",
    ["cohere", "deepseek_v3", "gemma2", "gpt2", "gpt_neox", "gpt_oss", "granite", "mixtral", "opt", "qwen3_moe"],
)
def test_logits_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    """In one pass, in chunks, and token by token; far beyond the sliding window of those that have one."""
    expected = logits_by_transformers(write_model(tmp_path, family), PROMPT)
    model = load(tmp_path)
    for chunk in (512, 7, 1):
        torch.testing.assert_close(logits_of(model, PROMPT, chunk), expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("family", ["gpt_oss", "mixtral", "qwen3_moe"])
def test_a_request_gets_the_tokens_that_it_gets_alone(tmp_path: Path, family: str) -> None:
    """Whatever it shares its batch with, also where each token has its own experts."""
    write_model(tmp_path, family)
    model = load(tmp_path)
    asks = [Ask(str(length), random_tokens(length, 160, seed=length), GREEDY) for length in (1, 5, 16, 33)]
    Driver(ModelRunner(model)).run(asks, 12, budget=24)
    for ask in asks:
        alone = Ask("alone", ask.prompt, GREEDY)
        Driver(ModelRunner(model)).run([alone], 12)
        assert ask.output == alone.output


def test_what_cache_and_scheduler_must_know(tmp_path: Path) -> None:
    """Sizes as the layers have them: the windows of each, and the inputs' size where it is not the layers'."""
    write_model(tmp_path / "opt", "opt")
    assert load(tmp_path / "opt").architecture.hidden_size == 48
    written = write_model(tmp_path / "gemma2", "gemma2")
    model = load(tmp_path / "gemma2")
    shape = model.architecture
    assert (shape.num_layers, shape.num_kv_heads, shape.head_size, shape.vocab_size) == (3, 2, 16, 160)
    assert shape.windows == (8, None, 8)
    assert model.num_weight_bytes >= sum(parameter.nbytes for parameter in written.parameters())


def test_a_window_that_no_text_exceeds_is_none(tmp_path: Path) -> None:
    """So that its layers share the block tables of the others."""
    write_model(tmp_path, "phi3")
    assert load(tmp_path, max_model_len=8).architecture.windows == (None, None, None)
    with pytest.raises(ValueError, match=r"max_model_len must be in \[1, 512\], the model's own limit, got 513"):
        load(tmp_path, max_model_len=513)


def test_longrope_rotates_all_texts_alike(tmp_path: Path) -> None:
    """As transformers rotates the longest that may come; token by token, too, where transformers changes in between."""
    factors = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    rope = {"rope_type": "longrope", "rope_theta": 1000.0, **factors, "original_max_position_embeddings": 32}
    written = write_model(tmp_path, "phi3", rope_parameters=rope, original_max_position_embeddings=32)
    for model, prompt in ((load(tmp_path), PROMPT), (load(tmp_path, max_model_len=32), PROMPT[:32])):
        expected = logits_by_transformers(written, prompt)
        for chunk in (512, 1):
            torch.testing.assert_close(logits_of(model, prompt, chunk), expected, atol=TOLERANCE, rtol=0)
    short = load(tmp_path, max_model_len=32)
    assert (logits_of(load(tmp_path), PROMPT[:32]) - logits_of(short, PROMPT[:32])).abs().max() > 0.1


def test_mxfp4_is_dequantized(tmp_path: Path) -> None:
    """As gpt-oss is published; the experts are those that transformers makes of them."""
    write_model(tmp_path, "gpt_oss", intermediate_size=64)
    quantize_experts(tmp_path)
    written = AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype="float32", attn_implementation="eager", quantization_config=Mxfp4Config(dequantize=True)
    )
    expected = logits_by_transformers(written, PROMPT)
    torch.testing.assert_close(logits_of(load(tmp_path), PROMPT), expected, atol=TOLERANCE, rtol=0)


def quantize_experts(folder: Path) -> None:
    """Puts random blocks and scales in the place of their weights [experts, in_size, out_size]."""
    config, weights = folder / "config.json", folder / "model.safetensors"
    tensors = load_file(weights)
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        num_experts, in_size, out_size = tensors.pop(name).shape
        shape = (num_experts, out_size, in_size // 32)
        tensors[f"{name}_blocks"] = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8)
        tensors[f"{name}_scales"] = torch.randint(122, 125, shape, dtype=torch.uint8)
    save_file(tensors, weights, {"format": "pt"})
    config.write_text(json.dumps(json.loads(config.read_text()) | {"quantization_config": {"quant_method": "mxfp4"}}))


def test_a_model_sleeps_and_wakes_up(tmp_path: Path) -> None:
    """Asleep it leaves nothing in memory; awake it is the one that it was."""
    write_model(tmp_path, "mixtral")
    executor = InProcessExecutor.load(ModelConfig(path=tmp_path))
    executor.initialize_kv_cache(8, 16)
    gone, held = weakref.ref(executor._running.model._parts.model), executor.memory_bytes
    executor.sleep()
    gc.collect()
    assert gone() is None
    executor.wake_up(["weights", "kv_cache"])
    assert executor.memory_bytes == held
    executor.shutdown()


def test_one_process_computes_it(tmp_path: Path) -> None:
    """Ranks would each compute all of it."""
    write_model(tmp_path, "olmo2")
    with pytest.raises(
        ValueError, match="tensor_parallel_size must be 1 for a family that transformers computes, got 2"
    ):
        load_model(ModelConfig(path=tmp_path), group=SimpleNamespace(rank=0, size=2))


NO_PLACE = {"num_hidden_layers": 4, "layer_types": ["linear_attention"] * 3 + ["full_attention"], "head_dim": 16}
ALL_EXPERTS = {
    "n_routed_experts": 4,
    "num_local_experts": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        (
            "inkling_text",
            {**ALL_EXPERTS, "head_dim": 16},
            "its attention needs position_bias, which the core's does not",
        ),
        ("mimo_v2_flash", {**ALL_EXPERTS, "head_dim": 16}, "its layers differ in key-value heads and head size"),
        ("falcon", {}, "attention does not go through transformers' attention interface"),
        ("bert", {}, "its mask is neither causal nor causal with a sliding window"),
        ("qwen3_next", {**ALL_EXPERTS, **NO_PLACE}, "depends on others outside of its attention"),
        ("roberta", {"is_decoder": True}, "do not give the logits of the model as it is"),
        ("diffllama", {"head_dim": 16}, "DiffLlamaAttention attends more than once for a token"),
        ("openai-gpt", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}, "attention interface"),
        ("bloom", {"n_layer": 2, "n_head": 4}, "it computes with attention masks itself"),
    ],
)
def test_what_would_be_served_wrong_is_refused(
    tmp_path: Path, family: str, settings: dict[str, Any], message: str
) -> None:
    """By what the model does when it runs; the message says what that is."""
    write_model(tmp_path, family, **settings)
    with pytest.raises(ModelLoadError, match=message):
        load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "nova"}, "model_type 'nova' is known neither to the core nor to transformers 5"),
        ({"model_type": "vit"}, "transformers has no causal language model of that kind"),
        ({"model_type": "bart"}, "encoder-decoder models cannot be served"),
        ({"model_type": "gemma3"}, "models of more than text cannot be served"),
        ({"architectures": ["Phi3ForSequenceClassification"]}, "must name a causal language model, got Phi3ForSeq"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config: of quantized .* mxfp4 .* got 'fp8'"),
        ({"num_hidden_layers": 4}, r"missing tensor model.layers.3\S+ \(6 in all\)"),
        ({"num_hidden_layers": 2}, r"unexpected tensor model.layers.2\S+ \(6 in all\)"),
        ({"intermediate_size": 80}, "mismatched"),
        ({"max_position_embeddings": 0}, "max_position_embeddings, the longest context, must be an integer >= 1"),
        ({"num_attention_heads": "many"}, "transformers cannot read it"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """Rather than served with random weights in the places of missing ones, or by code that came with it."""
    write_model(tmp_path, "phi3")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelLoadError, match=message):
        load(tmp_path)
