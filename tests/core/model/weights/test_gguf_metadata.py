"""What a GGUF's metadata says about its model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from core.model.architecture import Architecture, Rope, YarnScaling
from core.model.weights.gguf_file import GgufFile, GgufTensor
from core.model.weights.gguf_metadata import read_architecture
from core.model.weights.gguf_source import open_gguf
from core.model.weights.weight_source import ModelLoadError
from tests.core.model.tiny_model import TINY, TINY_QWEN2, TinyModel

SIZES = {
    "context_length": 512,
    "embedding_length": 64,
    "block_count": 3,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
}
COUNT = r"must be an integer in \[1, 2147483647\]"


def read(name: str = "llama", tensors: tuple[str, ...] = (), **changes: Any) -> Architecture:
    """Of a file that says ``changes`` beside the sizes; a key's dots are written as double underscores."""
    metadata = {"general.architecture": name} | {f"{name}.{key}": value for key, value in SIZES.items()}
    metadata |= {key.replace("__", "."): value for key, value in changes.items()}
    tensor = GgufTensor(gguf.GGMLQuantizationType.F32, (160, 64), np.zeros((160, 256), np.uint8))
    names = ("token_embd.weight", *tensors)
    return read_architecture(GgufFile(Path("tiny.gguf"), metadata, dict.fromkeys(names, tensor)))


@pytest.mark.parametrize("architecture", [TINY, TINY_QWEN2], ids=["llama", "qwen2"])
def test_the_architecture_is_read(tmp_path: Path, architecture: Architecture) -> None:
    """All of it, from metadata and from the embedding's shape, of a real file."""
    TinyModel(architecture).write_gguf(tmp_path / "tiny.gguf")
    read = open_gguf(tmp_path / "tiny.gguf").architecture
    assert read == replace(architecture, norm_eps=pytest.approx(architecture.norm_eps))


@pytest.mark.parametrize(
    ("scaling", "rope"),
    [
        ({}, Rope(10_000.0)),
        ({"llama__rope__freq_base": 7.0}, Rope(7.0)),
        ({"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 4.0}, Rope(linear_factor=4.0)),
        (
            {"llama__rope__scaling__type": "yarn", "llama__rope__scaling__factor": 4.0},
            Rope(yarn=YarnScaling(4.0, original_max_len=512)),
        ),
        (
            {
                "llama__rope__scaling__type": "yarn",
                "llama__rope__scaling__factor": 4.0,
                "llama__rope__scaling__original_context_length": 64,
                "llama__rope__scaling__yarn_beta_fast": 16.0,
            },
            Rope(yarn=YarnScaling(4.0, original_max_len=64, beta_fast=16.0)),
        ),
    ],
)
def test_rotary_settings_are_read(scaling: dict[str, Any], rope: Rope) -> None:
    """One rope for all layers."""
    assert read(**scaling).ropes == (rope,) * 3


@pytest.mark.parametrize(
    ("name", "pattern", "windows"),
    [
        ("llama", None, (8, 8, 8)),
        ("phi3", None, (8, 8, 8)),
        ("gemma2", None, (8, None, 8)),
        ("gemma3", None, (8, 8, 8)),
        ("gemma3", 3, (8, 8, None)),
        ("gemma3", [True, False, True], (8, None, 8)),
    ],
)
def test_windows_are_read(name: str, pattern: Any, windows: tuple[int | None, ...]) -> None:
    """Of the layers that the file, or else the family, says have one. No window is none, too."""
    changes: dict[str, Any] = {f"{name}__attention__sliding_window": 8}
    if pattern is not None:
        changes[f"{name}__attention__sliding_window_pattern"] = pattern
    assert read(name, **changes).windows == windows
    assert read(name, **{f"{name}__attention__sliding_window": 0}).windows == (None, None, None)


def test_layers_with_a_window_have_a_rope_of_their_own_in_gemma3() -> None:
    """It is not scaled; both bases are the family's if the file does not say them."""
    windows = {"gemma3__attention__sliding_window": 8, "gemma3__attention__sliding_window_pattern": 3}
    scaling = {"gemma3__rope__scaling__type": "linear", "gemma3__rope__scaling__factor": 8.0}
    local, everywhere = Rope(10_000.0), Rope(1_000_000.0, linear_factor=8.0)
    assert read("gemma3", **windows, **scaling).ropes == (local, local, everywhere)
    bases = {"gemma3__rope__freq_base": 7.0, "gemma3__rope__freq_base_swa": 5.0}
    assert read("gemma3", **windows, **bases).ropes == (Rope(5.0), Rope(5.0), Rope(7.0))


@pytest.mark.parametrize(("name", "num_layers"), [("gemma2", 46), ("gemma3", 62)])
def test_scores_are_scaled_as_the_family_does(name: str, num_layers: int) -> None:
    """By the size of a head, but in the 27B models by the hidden size's part of a head; files do not say it."""
    head = {f"{name}__attention__key_length": 4, f"{name}__attention__value_length": 4}
    assert read(name, **head).attention_scale == 4**-0.5
    assert read(name, **head, **{f"{name}__block_count": num_layers}).attention_scale == 16**-0.5


def test_gemma2_bounds_scores_and_logits() -> None:
    """By what the file says, or else by the family's numbers; others only by the file's."""
    said = {"gemma2__attn_logit_softcapping": 5.0, "gemma2__final_logit_softcapping": 3.0}
    assert [
        (a.attention_softcap, a.logits_softcap) for a in (read("gemma2"), read("gemma2", **said), read("gemma3"))
    ] == [
        (50.0, 30.0),
        (5.0, 3.0),
        (None, None),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"llama__rope__scaling__type": "longrope"}, "scaling.type must be one of none, linear, yarn, got 'longrope'"),
        ({"llama__rope__scaling__type": "linear"}, "llama.rope.scaling.factor is missing"),
        ({"llama__rope__scaling__attn_factor": 1.19}, "rope.scaling.attn_factor must be one of 1.0, got 1.19"),
        ({"llama__rope__dimension_count": 8}, "llama.rope.dimension_count must equal the head size 16, got 8"),
        ({"llama__attention__value_length": 8}, "llama.attention.value_length must equal the head size 16, got 8"),
        ({"llama__attention__key_length": [16, 8, 16]}, f"key_length {COUNT}, got .16, 8, 16"),
        ({"llama__attention__head_count": 0}, f"llama.attention.head_count {COUNT}, got 0"),
        ({"llama__attention__head_count": 65}, f"llama.attention.key_length {COUNT}, got 0"),
        ({"llama__attention__sliding_window_pattern": [True]}, "sliding_window_pattern must have 3 entries, got .True"),
        ({"llama__expert_count": 8}, "llama.expert_count must be one of 0, got 8"),
        ({"llama__embedding_length": "64"}, f"llama.embedding_length {COUNT}, got '64'"),
        ({"llama__block_count": 10_001}, r"llama.block_count must be an integer in \[1, 10000\], got 10001"),
        ({"llama__rope__freq_base": -1.0}, "llama.rope.freq_base must be a number > 0 and at most 1e.30, got -1.0"),
        ({"split__count": 3}, "split.count must be 1 .the parts joined., got 3"),
        ({"split__count": "3"}, "split.count must be 1 .the parts joined., got '3'"),
        ({"general__architecture": "mamba"}, "must be one of llama, qwen2, qwen3, gemma2, gemma3, phi3, got 'mamba'"),
        ({"llama__context_length": None}, "llama.context_length is missing"),
    ],
)
def test_what_is_not_supported_is_told(changes: dict[str, Any], message: str) -> None:
    """With the metadata's name and value."""
    with pytest.raises(ModelLoadError, match=rf"tiny\.gguf: metadata .*{message}"):
        read(**changes)


def test_longrope_is_told_by_its_tensors() -> None:
    """No key does."""
    with pytest.raises(
        ModelLoadError, match=r"tiny\.gguf: tensor rope_factors_long\.weight: LongRoPE is not supported"
    ):
        read("phi3", tensors=("rope_factors_long.weight", "rope_factors_short.weight"))


def test_a_file_without_an_embedding_is_told() -> None:
    """Its vocabulary would have no size."""
    metadata = {"general.architecture": "llama"} | {f"llama.{key}": value for key, value in SIZES.items()}
    with pytest.raises(ModelLoadError, match=r"tensor token_embd\.weight is missing"):
        read_architecture(GgufFile(Path("tiny.gguf"), metadata, {}))
