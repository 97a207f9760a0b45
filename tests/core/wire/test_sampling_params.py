"""The bounds of every sampling parameter."""

import math
from typing import Any

import msgspec
import pytest

from core.wire.sampling_params import (
    MAX_BAD_WORDS,
    MAX_LOGPROB_ENTRIES,
    MAX_LOGPROBS,
    MAX_N,
    RepetitionDetection,
    SamplingParams,
    find_scored_prompt_violations,
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
        {"logprobs": 0, "prompt_logprobs": MAX_LOGPROBS},
        {"logprob_token_ids": list(range(VOCAB_SIZE))},
        {"logprob_token_ids": [5, 5], "logprobs": 2},
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
        ({"logprobs": -1}, "logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"logprob_token_ids": [1, 2], "logprobs": 3}, "logprob_token_ids"),
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


@pytest.mark.parametrize("field", ["logprobs", "prompt_logprobs"])
def test_the_operator_says_how_many_logprobs_are_allowed(field: str) -> None:
    """More than by default, or those of the whole vocabulary, by their number or as -1; none but the token's own."""

    def is_allowed(asked: int, bound: int) -> bool:
        violations = [*find_violations(SamplingParams(**{field: asked}), VOCAB_SIZE, bound)]
        assert all(violation.field == field for violation in violations)
        return not violations

    assert all(is_allowed(asked, bound) for asked, bound in ((50, 50), (-1, -1), (VOCAB_SIZE, -1), (0, 0)))
    refused = (51, 50), (-1, 50), (VOCAB_SIZE + 1, -1), (1, 0), (-2, -1)
    assert not any(is_allowed(asked, bound) for asked, bound in refused)


def test_more_than_128_tokens_are_not_scored() -> None:
    """Each costs a column of every answer."""
    params = SamplingParams(logprob_token_ids=[1] * 129)
    (violation,) = find_violations(params, 1000)
    assert violation == ("logprob_token_ids", "must have at most 128 token ids, got 129")


@pytest.mark.parametrize(("asked", "number"), [(True, 1), (False, 0), (3, 3)])
def test_true_logprobs_are_one(asked: Any, number: int) -> None:
    """As vLLM takes it, from Python and from the wire."""
    assert SamplingParams(logprobs=asked).logprobs is number
    received = msgspec.msgpack.decode(msgspec.msgpack.encode({"logprobs": asked}), type=SamplingParams)
    assert received.logprobs is number


def test_a_scored_prompt_has_bounded_memory() -> None:
    """The longest with the default number; the whole vocabulary only for a short one."""
    limit = MAX_LOGPROB_ENTRIES // (VOCAB_SIZE + 1)
    params = SamplingParams(prompt_logprobs=-1)
    assert not [*find_scored_prompt_violations(params, VOCAB_SIZE, limit)]
    (violation,) = find_scored_prompt_violations(params, VOCAB_SIZE, limit + 1)
    assert violation.field == "prompt_logprobs"
    assert str(limit + 1) in violation.description
    assert not [*find_scored_prompt_violations(SamplingParams(prompt_logprobs=20), VOCAB_SIZE, 2**19)]


def test_violations_tell_value_and_bound() -> None:
    """The sentence has both the bound and the value."""
    (violation,) = find_violations(SamplingParams(top_p=1.5), VOCAB_SIZE)
    assert violation.description == "must be in (0, 1], got 1.5"
