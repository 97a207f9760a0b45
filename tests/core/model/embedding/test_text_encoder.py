"""core.model.embedding.text_encoder and pooling: vectors are what transformers computes, pooled as the folder says."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from core.config import ModelConfig, SchedulerConfig
from core.embedding.load import holds_embedding_model, load_embedding_engine
from core.model.embedding.text_encoder import TextEncoder
from core.model.weights.weight_source import ModelLoadError
from tests.tiny_encoder import MAX_TOKENS, SIZE, WORDS, write_tiny_encoder

_PROMPTS = [[2, 4, 5, 6, 7, 8, 3], [2, 8, 3], [2, 9, 9, 9, 3]]


@pytest.mark.parametrize(
    ("mode", "pool"),
    [
        ("mean_tokens", lambda hidden: hidden.mean(0)),
        ("cls_token", lambda hidden: hidden[0]),
        ("lasttoken", lambda hidden: hidden[-1]),
        ("max_tokens", lambda hidden: hidden.amax(0)),
    ],
)
def test_vectors_in_a_batch_are_those_of_each_text_alone(tmp_path: Path, mode: str, pool: object) -> None:
    """Padding takes no part."""
    model = write_tiny_encoder(tmp_path, mode)
    vectors = TextEncoder(ModelConfig(tmp_path)).encode(_PROMPTS)
    for prompt, vector in zip(_PROMPTS, vectors, strict=True):
        with torch.inference_mode():
            expected = pool(model(torch.tensor([prompt])).last_hidden_state[0])  # type: ignore[operator]
        np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)


def test_what_the_folder_says(tmp_path: Path) -> None:
    """Sizes, the longest text and the normalization."""
    write_tiny_encoder(tmp_path, is_normalized=False)
    assert holds_embedding_model(tmp_path)
    info = TextEncoder(ModelConfig(tmp_path)).info
    assert (info.max_model_len, info.vocab_size, info.size) == (MAX_TOKENS, len(WORDS), SIZE)
    assert not info.is_normalized


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("modules.json", "[]", "there is no Transformer step"),
        ("modules.json", "{", "cannot be read"),
        ("modules.json", "{}", "must be a JSON list"),
        ("modules.json", json.dumps([{"type": "sentence_transformers.models.Dense"}]), "'Dense' is not supported"),
        ("1_Pooling/config.json", "{}", "the pooling mode must be one of"),
        ("1_Pooling/config.json", json.dumps({"pooling_mode": "weightedmean"}), "got 'weightedmean'"),
        ("sentence_bert_config.json", json.dumps({"max_seq_length": 0}), "max_seq_length must be"),
        ("config.json", json.dumps({"model_type": "no such"}), "transformers cannot load it"),
    ],
)
def test_a_folder_that_cannot_be_served_says_why(tmp_path: Path, file: str, content: str, words: str) -> None:
    """With the file and what in it is wrong."""
    write_tiny_encoder(tmp_path)
    (tmp_path / file).write_text(content)
    with pytest.raises(ModelLoadError, match=words):
        TextEncoder(ModelConfig(tmp_path))


def test_settings_that_are_not_allowed(tmp_path: Path) -> None:
    """As for models that generate."""
    write_tiny_encoder(tmp_path)
    for config, words in [
        (ModelConfig(tmp_path, dtype="int8"), "dtype must be one of"),
        (ModelConfig(tmp_path, quantization="int8"), "quantization must be one of"),
        (ModelConfig(tmp_path, max_model_len=13), r"max_model_len must be in \[1, 12\]"),
    ]:
        with pytest.raises(ValueError, match=words):
            load_embedding_engine(config, SchedulerConfig())
