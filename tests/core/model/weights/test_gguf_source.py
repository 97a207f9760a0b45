"""The tensors of a GGUF file, under their Hugging Face names and dequantized."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Q
from gguf import GGUFValueType
from torch import Tensor

from core.model.decoder.decoder import Decoder
from core.model.decoder.layer_loader import LayerLoader
from core.model.weights.gguf_source import open_gguf
from core.model.weights.weight_source import ModelLoadError
from tests.core.model.tiny_model import TINY, TinyModel


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tiny.gguf"


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"llama.attention.head_count_kv": 3}, "4 attention heads cannot share 3 key-value heads evenly"),
        ({"llama.attention.key_length": 15}, "the head size must be even to be rotated, got 15"),
        ({"general.alignment": "32"}, "general.alignment must be an integer in .1, 2147483647., got '32'"),
    ],
)
def test_numbers_that_do_not_fit_together_are_told(path: Path, metadata: dict[str, Any], message: str) -> None:
    """At the load, not at the first request."""
    TinyModel(TINY).write_gguf(path, metadata=metadata)
    with pytest.raises(ModelLoadError, match=rf"tiny\.gguf: .*{message}"):
        open_gguf(path)


def load(path: Path) -> Decoder:
    return Decoder(LayerLoader(open_gguf(path), torch.device("cpu"), torch.float32))


def test_missing_unexpected_and_misshapen_tensors_are_told(path: Path) -> None:
    """With the name and both shapes."""
    missing, misshapen = TinyModel(TINY), TinyModel(TINY)
    del missing.weights["model.layers.1.mlp.up_proj.weight"]
    missing.write_gguf(path)
    with pytest.raises(ModelLoadError, match=r"tensor model\.layers\.1\.mlp\.up_proj\.weight is missing"):
        load(path)
    misshapen.weights["model.layers.2.mlp.down_proj.weight"] = torch.zeros(64, 32)
    misshapen.write_gguf(path)
    with pytest.raises(ModelLoadError, match=r"2\.mlp\.down_proj\.weight has shape \[64, 32\], expected \[64, 96\]"):
        load(path)
    TinyModel(TINY).write_gguf(path, extra={"blk.0.attn_q_norm.weight": torch.ones(16)})
    with pytest.raises(ModelLoadError, match=r"unexpected tensor blk\.0\.attn_q_norm\.weight \(1 in all\)"):
        load(path)


def write_raw(path: Path, kind: Q, rows: np.ndarray) -> None:
    """A file whose embedding is ``rows`` uint8 of ``kind``."""
    writer = gguf.GGUFWriter(path, "llama")
    for key in ("attention.head_count", "feed_forward_length", "block_count", "context_length"):
        writer.add_key_value(f"llama.{key}", 1, GGUFValueType.UINT32)
    writer.add_embedding_length(64)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tensor("token_embd.weight", rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def q4_k(block: np.ndarray) -> Tensor:
    """256 values of one Q4_K block, as ggml's dequantize_row_q4_K computes them."""
    d, dmin = block[:4].view(np.float16).astype(np.float32)
    packed, quants = block[4:16].astype(int), block[16:]
    values = []
    for j in range(8):
        if j < 4:
            scale, minimum = packed[j] & 63, packed[j + 4] & 63
        else:
            scale = (packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4)
            minimum = (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4)
        group = quants[j // 2 * 32 : j // 2 * 32 + 32]
        nibbles = group >> 4 if j % 2 else group & 15
        values += [float(d) * scale * int(q) - float(dmin) * minimum for q in nibbles]
    return torch.tensor(values, dtype=torch.float32)


@pytest.mark.parametrize("kind", [Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.Q4_0, Q.Q4_1, Q.Q8_0], ids=lambda kind: kind.name)
def test_blocks_are_dequantized(path: Path, kind: Q) -> None:
    """Random blocks, more than one chunk of them, whole and by rows, as the gguf package does it."""
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rows = np.random.default_rng(0).integers(0, 64, (1500, 1024 // block_size * block_bytes)).astype(np.uint8)
    write_raw(path, kind, rows)
    source, expected = open_gguf(path), gguf.quants.dequantize(rows, kind)
    shape = (1500, 1024)
    np.testing.assert_array_equal(source.dense("model.embed_tokens.weight", shape), expected)
    table, ids = source.row_table("model.embed_tokens.weight", shape), [7, 1499, 0, 7]
    np.testing.assert_array_equal(table(torch.tensor(ids)), expected[ids])
    if kind == Q.Q4_K:
        torch.testing.assert_close(torch.from_numpy(expected[0, :256]), q4_k(rows[0, :144]))


@pytest.mark.parametrize("kind", [Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0], ids=lambda kind: kind.name)
def test_matrices_stay_quantized(path: Path, kind: Q) -> None:
    """Whole and by rows they are the dequantized ones, q and k in the order of Hugging Face."""
    tiny = TinyModel(TINY)
    tiny.write_gguf(path, kind)
    source = open_gguf(path)
    for name, weight in tiny.weights.items():
        if weight.ndim == 1:
            source.dense(name, tuple(weight.shape))
            continue
        shape, rows = tuple(weight.shape), range(16, 32)
        affine, part = source.affine(name, shape), source.affine(name, shape, rows)
        assert affine is not None
        assert part is not None
        np.testing.assert_array_equal(affine.dense(), source.dense(name, shape))
        np.testing.assert_array_equal(part.dense(), source.dense(name, shape, rows))
    source.check_all_taken()


def test_an_affine_matrix_is_taken_and_checked_as_a_dense_one(path: Path) -> None:
    """None if the file has it in floats."""
    name, shape = "model.layers.0.mlp.up_proj.weight", (96, 64)
    tiny = TinyModel(TINY)
    tiny.weights = {name: tiny.weights[name], "model.embed_tokens.weight": torch.zeros(160, 64)}
    tiny.write_gguf(path, Q.F16)
    source = open_gguf(path)
    with pytest.raises(ModelLoadError, match=r"up_proj\.weight has shape \[96, 64\], expected \[64, 96\]"):
        source.affine(name, (64, 96))
    with pytest.raises(ModelLoadError, match=r"tensor lm_head\.weight is missing"):
        source.affine("lm_head.weight", shape)
    assert source.affine(name, shape) is None
    assert source.affine("model.embed_tokens.weight", (160, 64)) is None
    source.check_all_taken()


def test_an_unsupported_type_is_told(path: Path) -> None:
    """With the tensor's name."""
    write_raw(path, Q.I32, np.zeros((4, 64), np.int32))
    with pytest.raises(ModelLoadError, match=r"tensor token_embd\.weight has unsupported type I32"):
        open_gguf(path)
