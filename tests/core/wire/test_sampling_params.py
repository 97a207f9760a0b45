"""The bounds of every sampling parameter."""

import math
from typing import Any

import pytest

from core.wire.sampling_params import (
    MAX_BAD_WORDS,
    MAX_LOGPROBS,
    MAX_N,
    RepetitionDetection,
    SamplingParams,
    find_violations,
)

VOCAB_SIZE = 100


def violated_fields(**params: Any) -> list[str]:
    return [violation.field for violation in find_violations(SamplingParams(**params), VOCAB_SIZE)]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"n": MAX_N},
        {"n": 1, "temperature": 0.0},
        {"temperature": 2.0, "top_p": 1.0, "top_k": -1, "min_p": 1.0},
        {"top_k": 2**31 - 1},
        {"presence_penalty": -2.0, "frequency_penalty": 2.0, "repetition_penalty": 1e-6},
        {"max_tokens": 2**64 - 1, "repetition_penalty": 1e6},
        {"max_tokens": None, "min_tokens": 2**31 - 1},
        {"max_tokens": 1, "min_tokens": 1},
        {"logprobs": -1, "prompt_logprobs": MAX_LOGPROBS},
        {"stop_token_ids": [0, VOCAB_SIZE - 1], "logit_bias": {VOCAB_SIZE - 1: 1.0}, "allowed_token_ids": [1]},
        {"repetition_detection": RepetitionDetection(4, 0, 2)},
        {"logit_bias": {0: 1e20, 1: -1e20}, "bad_words_token_ids": [[1]] * MAX_BAD_WORDS},
        {"seed": -(2**63)},
        {"seed": 2**64 - 1},
    ],
)
def test_values_at_the_bounds(params: dict[str, Any]) -> None:
    """The bounds themselves are allowed, and so are the defaults."""
    assert violated_fields(**params) == []


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"n": 0}, "n"),
        ({"n": MAX_N + 1}, "n"),
        ({"n": 2, "temperature": 0.0}, "n"),
        ({"temperature": 2.01}, "temperature"),
        ({"temperature": -0.01}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": -0.01}, "min_p"),
        ({"min_p": 1.01}, "min_p"),
        ({"presence_penalty": 2.01}, "presence_penalty"),
        ({"frequency_penalty": -2.01}, "frequency_penalty"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"repetition_penalty": 1e-50}, "repetition_penalty"),
        ({"repetition_penalty": 1e300}, "repetition_penalty"),
        ({"top_k": 2**31}, "top_k"),
        ({"top_k": 2**63}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 2**31, "max_tokens": None}, "min_tokens"),
        ({"max_tokens": 4, "min_tokens": 5}, "min_tokens"),
        ({"logprobs": -2}, "logprobs"),
        ({"logprobs": MAX_LOGPROBS + 1}, "logprobs"),
        ({"prompt_logprobs": MAX_LOGPROBS + 1}, "prompt_logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"stop_token_ids": [1, VOCAB_SIZE]}, "stop_token_ids"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"all_stop_token_ids": [VOCAB_SIZE]}, "all_stop_token_ids"),
        ({"eos_token_id": VOCAB_SIZE}, "eos_token_id"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [VOCAB_SIZE]}, "allowed_token_ids"),
        ({"logit_bias": {VOCAB_SIZE: 1.0}}, "logit_bias"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias"),
        ({"logit_bias": {5: math.inf}}, "logit_bias[5]"),
        ({"logit_bias": {4: 1.0, 5: -2e20, 6: 3e38}}, "logit_bias[5]"),
        ({"logit_bias": {2**64 - 1: 1.0}}, "logit_bias"),
        ({"logprob_token_ids": [VOCAB_SIZE]}, "logprob_token_ids"),
        ({"bad_words_token_ids": [[1], [2, VOCAB_SIZE]]}, "bad_words_token_ids"),
        ({"bad_words_token_ids": [[]]}, "bad_words_token_ids"),
        ({"bad_words_token_ids": [[1], []]}, "bad_words_token_ids"),
        ({"bad_words_token_ids": [[1]] * (MAX_BAD_WORDS + 1)}, "bad_words_token_ids"),
        ({"allowed_token_ids": [1] * (VOCAB_SIZE + 1)}, "allowed_token_ids"),
        ({"stop_token_ids": [2**64 - 1]}, "stop_token_ids"),
        ({"repetition_detection": RepetitionDetection(2, 3, 2)}, "repetition_detection"),
        ({"repetition_detection": RepetitionDetection(4, 1, 1)}, "repetition_detection"),
    ],
)
def test_values_beyond_the_bounds(params: dict[str, Any], field: str) -> None:
    """A value beyond a bound is reported under its field, once."""
    assert violated_fields(**params) == [field]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "field", ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"]
)
def test_not_a_number(field: str, value: float) -> None:
    """NaN and infinity are out of bounds everywhere."""
    assert violated_fields(**{field: value}) == [field]


def test_violations_tell_value_and_bound() -> None:
    """The sentence has both the bound and the value."""
    (violation,) = find_violations(SamplingParams(top_p=1.5), VOCAB_SIZE)
    assert violation.description == "must be in (0, 1], got 1.5"
