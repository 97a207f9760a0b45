"""What the engine refuses at the door: every error names the field, the value and the bound."""

import math
from dataclasses import replace
from typing import Any

import pytest

from core.request_limits import RequestError, check_request
from core.wire.messages import LoRARequest
from core.wire.sampling_params import RepetitionDetection, SamplingParams, StructuredOutputs
from tests.core.builders import LIMITS, VOCAB_SIZE, make_message


def refusal(params: SamplingParams | None = None, **fields: Any) -> str:
    with pytest.raises(RequestError) as caught:
        check_request(make_message(params=params, **fields), LIMITS)
    return str(caught.value)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([], ["at least one token"]),
        (None, ["at least one token"]),
        ([1, -1], ["[0, 999]", "-1", "position 1"]),
        ([VOCAB_SIZE], ["[0, 999]", "1000"]),
        ([2**31 - 1], ["[0, 999]", "2147483647"]),
        (list(range(64)), ["max_model_len (64)", "64"]),
        (list(range(65)), ["max_model_len (64)", "65"]),
        (list(range(49)), ["KV cache of 48 tokens", "49"]),
    ],
)
def test_a_bad_prompt_is_refused(prompt: list[int] | None, words: list[str]) -> None:
    """Empty, negative, outside the vocabulary, no room for one more token, or larger than the KV cache."""
    message = refusal(prompt_token_ids=prompt)
    assert message.startswith("prompt_token_ids ")
    assert all(word in message for word in words)


def test_the_longest_prompt_and_the_last_token_id_are_taken() -> None:
    """A prompt that fills the KV cache, ending with the last id of the vocabulary."""
    check_request(make_message(prompt=[VOCAB_SIZE - 1] * 48), LIMITS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mm_features", [{}]),
        ("pooling_params", {"task": "embed"}),
        ("lora_request", LoRARequest("adapter", 1)),
        ("resumable", True),
    ],
)
def test_what_the_engine_cannot_do_is_refused_not_ignored(field: str, value: Any) -> None:
    """A request that needs what is not built gets an error with the field's name."""
    assert f"{field} is not supported" in refusal(**{field: value})


def test_a_form_is_checked() -> None:
    """As far as it shows without compiling it; what is wrong with it has its own name."""
    assert refusal(SamplingParams(structured_outputs=StructuredOutputs(regex=" "))).startswith(
        "structured_outputs.regex must not be blank"
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "field", ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"]
)
def test_no_number_field_takes_nan_or_infinity(field: str, value: float) -> None:
    """The core checks again what the front end has checked."""
    assert refusal(SamplingParams(**{field: value})).startswith(f"{field} must be")


def test_bad_words_come_with_their_tokens() -> None:
    """A front end that only has the words would get an answer with them."""
    assert "bad_words must come with their tokens" in refusal(SamplingParams(bad_words=["x"]))
    check_request(make_message(params=SamplingParams(bad_words=["x"], bad_words_token_ids=[[5]])), LIMITS)
    check_request(make_message(params=SamplingParams(bad_words=[])), LIMITS)


def test_a_thinking_budget_needs_a_reasoning_parser() -> None:
    """Zero counts as given; -1 asks for no limit, which is what there is."""
    assert "thinking_token_budget needs a reasoning parser" in refusal(SamplingParams(thinking_token_budget=0))
    check_request(make_message(params=SamplingParams(thinking_token_budget=-1)), LIMITS)


def test_all_logprobs_need_the_operators_leave_and_a_short_prompt() -> None:
    """The engine checks the front end, and with the length of the prompt the memory that its scores take."""
    params = SamplingParams(logprobs=-1, prompt_logprobs=-1)
    assert "max_logprobs" in refusal(params)
    allowing = replace(LIMITS, max_logprobs=-1)
    assert check_request(make_message(params=params), allowing) is params
    huge = replace(allowing, vocab_size=2**23)
    with pytest.raises(RequestError, match=r"prompt_logprobs must give at most 16777216"):
        check_request(make_message(params=params), huge)


def test_several_sequences_are_the_front_ends_business() -> None:
    """One request is one sequence: an ``n`` that reaches the core would be silently answered with one."""
    assert "n must be 1" in refusal(SamplingParams(n=2))


def test_missing_sampling_params_are_refused() -> None:
    """A request without them has nothing to say when it ends."""
    assert "sampling_params must be given" in refusal(sampling_params=None)


def test_everything_wrong_is_named_at_once() -> None:
    """Two bad fields give one error with both."""
    with pytest.raises(RequestError) as caught:
        check_request(make_message(prompt=[-1], params=SamplingParams(top_p=2, stop_token_ids=[VOCAB_SIZE])), LIMITS)
    assert [violation.field for violation in caught.value.violations] == ["prompt_token_ids", "top_p", "stop_token_ids"]


def test_all_that_the_model_runner_can_do_is_taken() -> None:
    """Every sampling field at work at once."""
    params = SamplingParams(
        presence_penalty=1,
        frequency_penalty=1,
        repetition_penalty=1.5,
        temperature=0.5,
        top_p=0.5,
        top_k=5,
        min_p=0.1,
        seed=-1,
        stop_token_ids=[1],
        min_tokens=2,
        logprobs=2,
        logprob_token_ids=[7, 8],
        prompt_logprobs=5,
        logit_bias={1: 1.0},
        allowed_token_ids=[1, 2],
        bad_words_token_ids=[[3, 4]],
        repetition_detection=RepetitionDetection(4, 1, 2),
    )
    assert check_request(make_message(params=params), LIMITS) is params
