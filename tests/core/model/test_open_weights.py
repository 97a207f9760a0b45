"""Which of a path's files is the model."""

from pathlib import Path

import pytest

from core.model.open_weights import open_weights
from core.model.weight_source import ModelLoadError
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
