"""Settings that a model is loaded with."""

from pathlib import Path

import pytest

from core.config import ModelConfig
from core.model.registry import load_model
from tests.core.model.tiny_model import TINY, TinyModel


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quantization": "int8"}, "quantization must be one of auto, none, got 'int8'"),
        ({"attention_backend": "fast"}, "attention_backend must be one of auto, native, torch, flash, got 'fast'"),
        ({"kernels": "sse"}, "kernels must be one of auto, avx512, avx2, torch, got 'sse'"),
        ({"dtype": "float8"}, "dtype must be one of auto, float32, bfloat16, float16, got 'float8'"),
        ({"device": "tpu"}, "device must be one of cpu.*, got 'tpu'"),
        ({"max_model_len": 513}, r"max_model_len must be in \[1, 512\], the model's own limit, got 513"),
        ({"max_model_len": 0}, r"max_model_len must be in \[1, 512\]"),
    ],
)
def test_a_setting_out_of_bounds_is_told(tmp_path: Path, settings: dict[str, object], message: str) -> None:
    """With its name, its value and what is allowed."""
    TinyModel(TINY).write_safetensors(tmp_path)
    with pytest.raises(ValueError, match=message):
        load_model(ModelConfig(path=tmp_path, **settings))
