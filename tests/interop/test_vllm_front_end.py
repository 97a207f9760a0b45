"""vLLM's Python front end, which starts no engine of its own, with our core behind it."""

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.interop import vllm_python
from tests.interop.openai_api import OpenAIApi
from tests.interop.program import Program
from tests.interop.reference import CAPITAL, ITALY, NUM_TOKENS, STORY, TEXT_CASES, check_prompt, check_tokens
from tests.interop.vllm_rs import core

pytestmark = [pytest.mark.interop, pytest.mark.vllm_python, pytest.mark.timeout(5000)]

NUM_SEATS = 2
ENDLESS = {"max_tokens": 900, "ignore_eos": True, "temperature": 0}


@dataclass(frozen=True)
class Served:
    """The front end with its core."""

    program: Program
    core: Program
    api: OpenAIApi


@pytest.fixture(scope="module")
def front_end(vllm_interpreter) -> Iterator[Served]:
    """One for all tests; the last one ends it."""
    with (
        vllm_python.front_end(vllm_interpreter) as (program, api, dial),
        core("--headless", "--max-num-seqs", str(NUM_SEATS), *dial) as engine,
    ):
        program.wait_until_served(f"http://127.0.0.1:{api.port}/health", vllm_python.START_TIMEOUT_S)
        yield Served(program, engine, api)


def _greedy(num_tokens: int = NUM_TOKENS, **others):
    return {"temperature": 0, "max_tokens": num_tokens, "return_token_ids": True, **others}


def _check_completed(front_end: Served, case: dict) -> None:
    (choice,) = front_end.api.complete(case["prompt_text"], **_greedy(logprobs=1))["choices"]
    check_tokens(case, choice["token_ids"], choice["logprobs"]["token_logprobs"])


def test_every_text_case_gives_its_tokens_and_logprobs(front_end: Served) -> None:
    """Over /v1/completions; the utility calls of the start were answered."""
    for case in TEXT_CASES:
        _check_completed(front_end, case)


def test_a_prompt_is_scored_as_in_the_reference(front_end: Served) -> None:
    """Prompt log-probabilities, which travel as tensors."""
    (choice,) = front_end.api.complete(STORY["prompt_token_ids"], **_greedy(1, prompt_logprobs=0))["choices"]
    scored = [
        None if position is None else position[str(token_id)]["logprob"]
        for position, token_id in zip(choice["prompt_logprobs"], STORY["prompt_token_ids"], strict=True)
    ]
    check_prompt(STORY, scored)


def test_a_streamed_chat_is_the_reference_text_in_pieces(front_end: Served) -> None:
    """Up to the end of the sequence, with its usage."""
    with front_end.api.stream_chat(ITALY["messages"], temperature=0, max_tokens=30) as stream:
        events = list(stream)
    choices = [choice for event in events for choice in event["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == ITALY["greedy_text"]
    assert choices[-1]["finish_reason"] == "stop"
    assert events[-1]["usage"]["completion_tokens"] == len(ITALY["greedy_token_ids"])


def test_n_samples_with_a_seed_are_the_same_again(front_end: Served) -> None:
    """n requests for the core, each with a seed of its own."""
    options = {"n": 2, "seed": 7, "temperature": 1, "max_tokens": NUM_TOKENS}
    first, again = (front_end.api.complete(STORY["prompt_text"], **options)["choices"] for _ in range(2))
    assert [choice["text"] for choice in first] == [choice["text"] for choice in again]
    assert first[0]["text"] != first[1]["text"]


def test_a_stop_string_and_a_client_that_goes_away_leave_their_seats_to_the_next(front_end: Served) -> None:
    """ABORT reaches the core."""
    for _ in range(NUM_SEATS):
        (choice,) = front_end.api.complete(CAPITAL["prompt_text"], stop=["answer"], **ENDLESS)["choices"]
        assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (" Paris.\n\nThe ", "stop", "answer")
        with front_end.api.stream_complete(STORY["prompt_text"], **ENDLESS) as stream:
            next(stream), next(stream)
    _check_completed(front_end, CAPITAL)


def test_the_core_s_statistics_are_among_the_front_end_s_metrics(front_end: Served) -> None:
    """What its prefix cache has counted."""
    assert 'vllm:prefix_cache_queries_total{engine="0"' in front_end.api.get("/metrics")
    assert json.loads(front_end.api.get("/v1/models"))["data"][0]["max_model_len"] == vllm_python.MAX_MODEL_LEN


def test_sigterm_ends_both_with_0(front_end: Served) -> None:
    """Whoever goes first."""
    for program in (front_end.core, front_end.program):
        program.send_signal(signal.SIGTERM)
        assert program.wait() == 0
