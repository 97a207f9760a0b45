"""Requests that another core began: they go on as if they had been here all the time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from core.executor.fake import FAKE_MODEL
from core.request_limits import RequestError
from core.wire.messages import EngineCoreOutput, FinishReason
from core.wire.resume import Resume, resuming
from core.wire.sampling_params import SamplingParams
from core.wire.tensor import Tensor
from tests.core.builders import add, expected_tokens, make_engine, make_message, make_request, run_to_end, tokens_of

PROMPT = (1, 2, 3)


def resume(token_ids: Sequence[int], **params: Any) -> list[EngineCoreOutput]:
    """What a new engine gives to a request that has ``token_ids`` already."""
    engine = make_engine()
    told = resuming(SamplingParams(**params), Resume([*token_ids], "r"))
    engine.add_request(engine.preprocess_add_request(make_message("r~1", PROMPT, told)))
    return run_to_end(engine)["r~1"]


@pytest.mark.parametrize("num_given", [1, 5, 9])
def test_the_rest_of_the_tokens(num_given: int) -> None:
    """Counted from the end of the prompt, not told again of the prompt."""
    whole = expected_tokens(PROMPT, 10)
    outputs = resume(whole[:num_given], max_tokens=10, prompt_logprobs=1, logprobs=1)
    assert tokens_of(outputs) == whole[num_given:]
    assert outputs[-1].finish_reason is FinishReason.LENGTH
    assert all(output.prefill_stats is None for output in outputs)
    assert all(output.new_prompt_logprobs_tensors is None for output in outputs)
    assert all(output.new_logprobs is not None for output in outputs)


def test_one_that_had_not_begun() -> None:
    """Begins, and is told of its prompt."""
    outputs = resume([], max_tokens=10, prompt_logprobs=1)
    assert tokens_of(outputs) == expected_tokens(PROMPT, 10)
    assert outputs[0].prefill_stats is not None
    assert outputs[0].new_prompt_logprobs_tensors is not None


def test_draws_without_a_seed_follow_the_first_name() -> None:
    """Under which the first core had it."""
    first = make_request("r")
    message = make_message("r~1", PROMPT, resuming(SamplingParams(), Resume([5], "r")))
    assert message.sampling_params is not None
    again = type(first)(message, message.sampling_params, engine_seed=0, max_num_tokens=64)
    assert again.seed == first.seed != make_request("r~1").seed


@pytest.mark.parametrize(("token_ids", "match"), [([1] * 10, "got 10"), ([10**6], "must be in")])
def test_what_cannot_go_on_is_refused(token_ids: list[int], match: str) -> None:
    """Rather than that the engine waits for a token that it may not have."""
    engine = make_engine()
    params = resuming(SamplingParams(max_tokens=10), Resume(token_ids, "r"))
    with pytest.raises(RequestError, match=match):
        engine.preprocess_add_request(make_message("r~1", PROMPT, params))
    add(engine, "good", PROMPT, max_tokens=2)
    assert tokens_of(run_to_end(engine)["good"]) == expected_tokens(PROMPT, 2)


def test_a_core_says_that_it_can() -> None:
    """Two of a kind say the same."""
    keys = {make_engine().ready_response.resume_key for _ in range(2)}
    assert len(keys) == 1
    assert keys != {None}


def test_a_prompt_of_rows() -> None:
    """Its output comes after the rows, as tokens."""
    rows = Tensor(np.arange(3 * FAKE_MODEL.hidden_size, dtype=np.float32).reshape(3, -1))

    def run(request_id: str, params: SamplingParams) -> list[int]:
        engine = make_engine()
        message = make_message(request_id, params=params, prompt_token_ids=None, prompt_embeds=rows)
        engine.add_request(engine.preprocess_add_request(message))
        return tokens_of(run_to_end(engine)[request_id])

    whole = run("r", SamplingParams(max_tokens=10))
    assert run("r~1", resuming(SamplingParams(max_tokens=10), Resume(whole[:4], "r"))) == whole[4:]
