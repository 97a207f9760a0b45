"""A model that several ranks share gives the logits of the whole one, the same bits on each."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Q
from torch import Tensor

from core.config import ModelConfig
from core.executor.tensor_group import DistributedTensorGroup
from core.model.lora.adapters import Adapters
from core.model.registry import load_model
from core.model.sharding import Shard, Sharding, share
from core.model.weights.gguf_source import open_gguf
from core.model.weights.weight_source import ModelLoadError, WeightSource
from tests.core.executor.rank_threads import on_each_rank
from tests.core.model.forward import logits_of
from tests.core.model.hf.tiny_transformers import write_model
from tests.core.model.lora.test_adapters import logits_of as logits_with
from tests.core.model.lora.tiny_adapter import TinyAdapter
from tests.core.model.tiny_model import TINY, TINY_QWEN2, TinyModel, random_tokens

PROMPT = random_tokens(40, TINY.vocab_size)
SMOLLM2 = replace(TINY, hidden_size=72, num_heads=9, num_kv_heads=3, head_size=8)
ONE_KV_HEAD = replace(TINY, num_kv_heads=1)


def shared_logits(path: Path, size: int, dtype: str = "auto") -> list[Tensor]:
    config = ModelConfig(path=path, dtype=dtype, quantization="none")
    return on_each_rank(size, lambda group: logits_of(load_model(config, group=group), PROMPT))


@pytest.mark.parametrize(("total", "size"), [(9, 2), (3, 2), (8, 4), (1536, 7), (5, 5), (2, 3)])
def test_shares_are_the_whole_in_order(total: int, size: int) -> None:
    """And as even as can be."""
    shares = [share(total, rank, size) for rank in range(size)]
    assert [place for part in shares for place in part] == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size", "expected"),
    [
        (9, 3, 2, [(range(6), range(2)), (range(6, 9), range(2, 3))]),
        (9, 3, 3, [(range(3), range(1)), (range(3, 6), range(1, 2)), (range(6, 9), range(2, 3))]),
        (4, 1, 2, [(range(2), range(1)), (range(2, 4), range(1))]),
        (4, 2, 3, [(range(1), range(1)), (range(1, 2), range(1)), (range(2, 4), range(1, 2))]),
        (6, 2, 2, [(range(3), range(1)), (range(3, 6), range(1, 2))]),
    ],
    ids=["uneven", "even", "one-kv-head", "replicated-unevenly", "groups"],
)
def test_query_heads_are_where_their_key_value_head_is(
    heads: int, kv_heads: int, size: int, expected: list[tuple[range, range]]
) -> None:
    """Each query head on one rank; a key-value head on several only if there are fewer of them than ranks."""
    architecture = replace(TINY, num_heads=heads, num_kv_heads=kv_heads)
    shards = [Shard.of(architecture, rank, size) for rank in range(size)]
    assert [(shard.heads, shard.kv_heads) for shard in shards] == expected


def test_more_ranks_than_heads_are_refused() -> None:
    """With both numbers."""
    with pytest.raises(ValueError, match="tensor_parallel_size must be at most 4, the model's heads, got 5"):
        Shard.of(TINY, 0, 5)


@pytest.mark.parametrize(
    ("tiny", "size"),
    [
        (TinyModel(TINY), 2),
        (TinyModel(SMOLLM2), 2),
        (TinyModel(ONE_KV_HEAD, has_head=True), 3),
        (TinyModel(replace(TINY_QWEN2, vocab_size=161, intermediate_size=97)), 2),
    ],
    ids=["even", "uneven-heads", "replicated-kv-head", "biases-and-odd-sizes"],
)
@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_logits_are_those_of_the_whole_model(tmp_path: Path, tiny: TinyModel, size: int, kind: str) -> None:
    """And every rank has the same bits of them: what each draws is what all draw."""
    if kind == "safetensors":
        tiny.write_safetensors(tmp_path)
    else:
        tiny.write_gguf(tmp_path / "tiny.gguf")
    whole = logits_of(load_model(ModelConfig(path=tmp_path)), PROMPT)
    first, *others = shared_logits(tmp_path, size)
    torch.testing.assert_close(first, whole, atol=2e-3, rtol=0)
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("mistral", {"sliding_window": 24}),
        ("qwen3", {"head_dim": 16}),
        ("gemma2", {"head_dim": 16, "final_logit_softcapping": 3.0, "attn_logit_softcapping": 5.0}),
        ("gemma3_text", {"head_dim": 16, "num_key_value_heads": 1}),
        ("phi3", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("size", [2, 3])
def test_every_family(tmp_path: Path, family: str, settings: dict[str, Any], size: int) -> None:
    """Biases of summed layers are added once; of fused tensors each rank has its part of q, of k and of v."""
    write_model(tmp_path, family, **settings)
    whole = logits_of(load_model(ModelConfig(path=tmp_path)), PROMPT)
    first, *others = shared_logits(tmp_path, size)
    torch.testing.assert_close(first, whole, atol=1e-4, rtol=0)
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("kind", [Q.F16, Q.BF16, Q.Q8_0, Q.Q4_1], ids=lambda kind: kind.name)
def test_quantized_files(tmp_path: Path, kind: Q) -> None:
    """A rank reads the rows that it has, and the blocks that hold its columns: 48 of 96, in blocks of 32."""
    TinyModel(TINY).write_gguf(tmp_path / "tiny.gguf", kind)
    whole = logits_of(load_model(ModelConfig(path=tmp_path, quantization="none")), PROMPT)
    for logits in shared_logits(tmp_path, 2):
        torch.testing.assert_close(logits, whole, atol=2e-3, rtol=0)


@dataclass(frozen=True)
class Rank:
    """Of a group that nobody asks to join results."""

    rank: int
    size: int


def cut_gguf(path: Path, rank: Any) -> WeightSource:
    source = open_gguf(path)
    return Sharding(source.architecture, rank).cut_source(source)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_quantized_parts_stay_quantized(tmp_path: Path, rank: int) -> None:
    """Rows, rows of permuted heads, and columns of whole groups: 32 of 96 on each of three ranks."""
    path, architecture = tmp_path / "tiny.gguf", replace(TINY, hidden_size=96, num_heads=6, num_kv_heads=3)
    TinyModel(architecture).write_gguf(path, Q.Q4_1)
    source = cut_gguf(path, Rank(rank, 3))
    shapes = {"self_attn.q_proj": (32, 96), "self_attn.k_proj": (16, 96), "mlp.up_proj": (32, 96)}
    for name, shape in {**shapes, "self_attn.o_proj": (96, 32), "mlp.down_proj": (96, 32)}.items():
        tensor, rows = f"model.layers.1.{name}.weight", range(16)
        affine, part = source.affine(tensor, shape), source.affine(tensor, shape, rows)
        assert affine is not None
        assert part is not None
        np.testing.assert_array_equal(affine.dense(), source.dense(tensor, shape))
        np.testing.assert_array_equal(part.dense(), source.dense(tensor, shape, rows))


def test_a_part_that_cuts_blocks_is_dense(tmp_path: Path) -> None:
    """48 columns of 96, in blocks of 32."""
    TinyModel(TINY).write_gguf(tmp_path / "tiny.gguf", Q.Q4_1)
    source = cut_gguf(tmp_path / "tiny.gguf", Rank(1, 2))
    assert source.affine("model.layers.0.mlp.down_proj.weight", (64, 48)) is None
    assert source.affine("model.layers.0.self_attn.o_proj.weight", (64, 32)) is not None


def test_quantized_parts_of_a_fused_matrix_are_joined(tmp_path: Path) -> None:
    """Gate and up, each rank's half of both."""
    fused = torch.randn(192, 64, generator=torch.Generator().manual_seed(0))
    tiny = TinyModel(replace(TINY, family="phi3"))
    del tiny.weights["model.layers.0.mlp.up_proj.weight"]
    tiny.write_gguf(tmp_path / "tiny.gguf", Q.Q8_0, extra={"blk.0.ffn_up.weight": fused})
    whole = open_gguf(tmp_path / "tiny.gguf").dense("model.layers.0.mlp.gate_up_proj.weight", (192, 64))
    gate, up = whole.split(96)
    for rank, columns in enumerate((slice(48), slice(48, 96))):
        source = cut_gguf(tmp_path / "tiny.gguf", Rank(rank, 2))
        affine = source.affine("model.layers.0.mlp.gate_up_proj.weight", (96, 64))
        assert affine is not None
        np.testing.assert_array_equal(affine.dense(), torch.cat((gate[columns], up[columns])))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(tmp_path: Path, dtype: str) -> None:
    """Sums of halves are near, and still the same on all ranks."""
    TinyModel(TINY).write_safetensors(tmp_path)
    whole = logits_of(load_model(ModelConfig(path=tmp_path, dtype=dtype)), PROMPT)
    first, second = shared_logits(tmp_path, 2, dtype)
    assert torch.nn.functional.cosine_similarity(first, whole).min() > 0.98
    assert torch.equal(first, second)


def test_adapters_are_cut_as_the_model_is(tmp_path: Path) -> None:
    """Each rank adds its part: beside a request without one, they are as the model that they are merged into."""
    base = TinyModel(replace(TINY_QWEN2, hidden_size=72, num_heads=9, num_kv_heads=3, head_size=8))
    adapter = TinyAdapter(base)
    base.write_safetensors(tmp_path)
    folder = adapter.write(tmp_path / "a")

    def adapted_logits(group: DistributedTensorGroup) -> list[Tensor]:
        adapters = Adapters(max_rank=8)
        model = load_model(ModelConfig(path=tmp_path), adapters, group)
        adapters.load(1, folder)
        return logits_with(model, adapters, [PROMPT[:20], PROMPT[:20]], [1, None])

    for adapted, plain in on_each_rank(2, adapted_logits):
        torch.testing.assert_close(adapted.double(), adapter.merged_into(base).logits(PROMPT[:20]), atol=2e-3, rtol=0)
        torch.testing.assert_close(plain.double(), base.logits(PROMPT[:20]), atol=2e-3, rtol=0)


def test_each_rank_holds_its_part(tmp_path: Path) -> None:
    """Weights and architecture; together the linears and the head are there once, but for what pads the head."""
    TinyModel(SMOLLM2).write_safetensors(tmp_path)
    config = ModelConfig(path=tmp_path, kernels="torch")  # whose weights have no padding of their own
    whole = load_model(config)
    models = on_each_rank(2, lambda group: load_model(config, group=group))
    assert [(model.architecture.num_heads, model.architecture.kv_size) for model in models] == [(6, 16), (3, 8)]
    norms = (2 * SMOLLM2.num_layers + 1) * SMOLLM2.hidden_size * 4
    assert sum(model.num_weight_bytes for model in models) == whole.num_weight_bytes + norms


def test_a_tensor_of_the_wrong_shape_is_named(tmp_path: Path) -> None:
    """A part of it would fit by chance."""
    tiny = TinyModel(TINY)
    name = "model.layers.0.self_attn.o_proj.weight"
    tiny.weights[name] = torch.zeros(TINY.hidden_size, TINY.query_size + 1)
    tiny.write_safetensors(tmp_path)
    with pytest.raises(ModelLoadError, match=rf"{name} has shape \[64, 65\], expected \[64, 32\]"):
        on_each_rank(2, lambda group: load_model(ModelConfig(path=tmp_path), group=group))
