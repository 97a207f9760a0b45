"""Which of a path's files is the model."""

from pathlib import Path
from typing import Any

import pytest

from core.model.weights.open_weights import is_left_to_transformers, open_weights
from core.model.weights.weight_source import ModelLoadError
from tests.core.model.tiny_model import TINY, TinyModel


def test_a_file_a_folder_with_a_gguf_and_a_folder_with_safetensors(tmp_path: Path) -> None:
    """Safetensors go before a GGUF beside them."""
    TinyModel(TINY).write_gguf(tmp_path / "tiny.gguf")
    for path in (tmp_path, tmp_path / "tiny.gguf"):
        assert "tiny.gguf" in repr(open_weights(path))
    TinyModel(TINY).write_safetensors(tmp_path)
    assert repr(open_weights(tmp_path)) == f"WeightSource({tmp_path}, llama, 29 tensors)"


def test_no_or_several_models_are_told(tmp_path: Path) -> None:
    """With the names of those found."""
    with pytest.raises(ModelLoadError, match=r"nowhere: no such file or folder"):
        open_weights(tmp_path / "nowhere")
    with pytest.raises(ModelLoadError, match=r"exactly one \.gguf file, found none"):
        open_weights(tmp_path)
    for name in ("b.gguf", "a.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(ModelLoadError, match=r"found a\.gguf, b\.gguf"):
        open_weights(tmp_path)


LONGROPE = {"model_type": "phi3", "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [4.0]}}


@pytest.mark.parametrize(
    ("config", "is_left"),
    [
        ({}, False),
        ({"model_type": "mamba"}, True),
        ({"model_type": None}, False),
        (LONGROPE, True),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, True),
        ({"partial_rotary_factor": 0.5}, True),
        ({"hidden_act": "relu"}, True),
        ({"hidden_size": -1}, False),
    ],
)
def test_what_a_config_asks_for_decides_who_computes(tmp_path: Path, config: dict[str, Any], is_left: bool) -> None:
    """A family that is not one of ours, and one of ours in a way that we have not; but not what is merely wrong."""
    TinyModel(TINY).write_safetensors(tmp_path, **config)
    assert is_left_to_transformers(tmp_path) is is_left


def test_a_gguf_is_never_left_to_transformers(tmp_path: Path) -> None:
    """Nor is a folder that has nothing else."""
    TinyModel(TINY).write_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    assert not is_left_to_transformers(tmp_path)
    assert not is_left_to_transformers(tmp_path / "tiny.gguf")
