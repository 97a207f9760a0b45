"""Llama and Qwen2 against a dense float64 computation by the book, out of every kind of file."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import pytest
import torch
from gguf import GGMLQuantizationType as Q

from core.config import ModelConfig
from core.model.architecture import Llama3Scaling, Rope
from core.model.model import Model
from core.model.registry import load_model
from tests.core.model.forward import logits_of
from tests.core.model.tiny_model import TINY, TINY_QWEN2, TinyModel, random_tokens

PROMPT = random_tokens(100, TINY.vocab_size)
TOLERANCE = 2e-3
"""Of logits of about 20: float32 against float64 through three layers."""


def load(path: Path, dtype: str = "auto") -> Model:
    return load_model(ModelConfig(path=path, dtype=dtype, quantization="none"))


@pytest.fixture(params=["safetensors", "gguf"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[TinyModel], Path]:
    """Writes a model in float32 and returns its path."""

    def write(tiny: TinyModel) -> Path:
        if request.param == "safetensors":
            tiny.write_safetensors(tmp_path)
        else:
            tiny.write_gguf(tmp_path / "tiny.gguf")
        return tmp_path

    return write


@pytest.mark.parametrize(
    "tiny",
    [TinyModel(TINY), TinyModel(TINY, has_head=True), TinyModel(TINY_QWEN2), TinyModel(replace(TINY, num_kv_heads=4))],
    ids=["tied-embeddings", "own-head", "qwen2-biases", "no-grouping"],
)
def test_logits_are_those_of_the_dense_computation(write: Callable[[TinyModel], Path], tiny: TinyModel) -> None:
    """q and k of a llama are un-permuted when they come from a GGUF, those of a qwen2 are not."""
    torch.testing.assert_close(
        logits_of(load(write(tiny)), PROMPT).double(), tiny.logits(PROMPT), atol=TOLERANCE, rtol=0
    )


@pytest.mark.parametrize("chunk", [1, 16, 33])
def test_chunks_give_the_logits_of_the_whole(tiny: Model, chunk: int) -> None:
    """One token at a time, whole blocks, and across blocks."""
    torch.testing.assert_close(logits_of(tiny, PROMPT, chunk), logits_of(tiny, PROMPT), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_gguf_and_safetensors_of_the_same_weights_give_the_same_logits(tmp_path: Path, dtype: torch.dtype) -> None:
    """To the bit: both are float32 maths on the same float32 weights."""
    tiny = TinyModel(TINY)
    tiny.weights = {name: weight.to(dtype).float() for name, weight in tiny.weights.items()}
    tiny.write_safetensors(tmp_path, torch.float32)
    kind = {torch.float32: Q.F32, torch.float16: Q.F16, torch.bfloat16: Q.BF16}[dtype]
    tiny.write_gguf(tmp_path / "tiny.gguf", kind)
    assert torch.equal(logits_of(load(tmp_path / "tiny.gguf"), PROMPT), logits_of(load(tmp_path), PROMPT))


@pytest.mark.parametrize("kind", [Q.Q4_0, Q.Q4_1, Q.Q8_0, Q.Q5_0], ids=lambda kind: kind.name)
def test_a_quantized_gguf_gives_the_logits_of_its_dequantized_weights(tmp_path: Path, kind: Q) -> None:
    """Embedding rows as well, which stay quantized in memory."""
    tiny = TinyModel(TINY)
    for name, weight in tiny.weights.items():
        if weight.ndim > 1:
            blocks = gguf.quants.quantize(weight.numpy(), kind)
            tiny.weights[name] = torch.from_numpy(gguf.quants.dequantize(blocks, kind))
    tiny.write_gguf(tmp_path / "tiny.gguf", kind)
    torch.testing.assert_close(logits_of(load(tmp_path), PROMPT).double(), tiny.logits(PROMPT), atol=TOLERANCE, rtol=0)


def test_llama3_scaling_in_a_config_changes_the_frequencies(tmp_path: Path) -> None:
    """As the dense computation has it."""
    scaling = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_len=32)
    scaled = TinyModel(replace(TINY, ropes=(Rope(theta=1000.0, llama3=scaling),) * 3))
    keys = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    scaled.write_safetensors(tmp_path, rope_scaling={"rope_type": "llama3", **keys})
    expected = scaled.logits(PROMPT)
    torch.testing.assert_close(logits_of(load(tmp_path), PROMPT).double(), expected, atol=TOLERANCE, rtol=0)
    assert (TinyModel(TINY).logits(PROMPT) - expected).abs().max() > 0.1


def test_rope_freqs_in_a_gguf_divide_the_frequencies(tmp_path: Path) -> None:
    """As llama.cpp stores Llama 3.1's scaling."""
    tiny, factors = TinyModel(TINY), torch.tensor([1.0, 1.0, 1.3, 4.7, 8.0, 8.0, 8.0, 8.0])
    tiny.write_gguf(tmp_path / "tiny.gguf", extra={"rope_freqs.weight": factors})
    expected = tiny.logits(PROMPT, factors)
    torch.testing.assert_close(logits_of(load(tmp_path), PROMPT).double(), expected, atol=TOLERANCE, rtol=0)
    assert (tiny.logits(PROMPT) - expected).abs().max() > 0.1


def test_bfloat16_stays_near(tmp_path: Path) -> None:
    """Weights, activations and KV cache in bfloat16."""
    TinyModel(TINY).write_safetensors(tmp_path)
    exact, rounded = logits_of(load(tmp_path), PROMPT), logits_of(load(tmp_path, "bfloat16"), PROMPT)
    cosine = torch.nn.functional.cosine_similarity(exact, rounded)
    assert cosine.min() > 0.98
