"""service.generation_config: what the model declares, as far as it can be used."""

import json
import logging
from pathlib import Path

import pytest

from service.generation_config import GenerationConfig
from service.models import ModelError


def _load(folder: Path, declared: object, config: object = None, eos_token_id: int | None = None) -> GenerationConfig:
    (folder / "generation_config.json").write_text(json.dumps(declared))
    (folder / "config.json").write_text(json.dumps(config or {}))
    return GenerationConfig.load(folder, vocab_size=100, eos_token_id=eos_token_id)


def test_declared_values_are_read(tmp_path: Path) -> None:
    """Those that vLLM reads; other keys are not ours."""
    declared = {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0, "repetition_penalty": 1.1}
    config = _load(tmp_path, {**declared, "max_new_tokens": 99, "max_length": 9, "do_sample": True})
    assert config.sampling == {**declared, "max_tokens": 99}


def test_nothing_declared_is_nothing(tmp_path: Path) -> None:
    """Neither file nor values: the documented defaults hold."""
    assert GenerationConfig.load(tmp_path, 100, None) == GenerationConfig()
    assert _load(tmp_path, {"temperature": None}).sampling == {}


@pytest.mark.parametrize(
    ("field", "value"), [("temperature", 7), ("top_p", 0), ("top_k", 1.5), ("min_p", "0.1"), ("repetition_penalty", -1)]
)
def test_unusable_value_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str, value: object
) -> None:
    """No request may fail for a field that it did not set."""
    with caplog.at_level(logging.WARNING):
        assert _load(tmp_path, {field: value}).sampling == {}
    assert field in caplog.text


@pytest.mark.parametrize(
    ("declared", "config", "tokenizer_s", "expected"),
    [
        ({"eos_token_id": 2}, {}, None, (2,)),
        ({"eos_token_id": [5, 6]}, {"eos_token_id": 9}, 6, (6, 5)),
        ({}, {"eos_token_id": 9}, None, (9,)),
        ({}, {}, 7, (7,)),
        ({"eos_token_id": [2, 100, -1, None]}, {}, 2, (2,)),
        ({}, {}, None, ()),
    ],
)
def test_end_of_sequence_tokens(
    tmp_path: Path, declared: object, config: object, tokenizer_s: int | None, expected: tuple[int, ...]
) -> None:
    """The tokenizer's first, then the model's others; ids outside the vocabulary are none."""
    assert _load(tmp_path, declared, config, tokenizer_s).eos_token_ids == expected


def test_file_that_is_no_json_object_is_named(tmp_path: Path) -> None:
    """Rather than taken for an empty one."""
    with pytest.raises(ModelError, match=r"generation_config\.json: expected a JSON object, got list"):
        _load(tmp_path, [1])
