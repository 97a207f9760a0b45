"""vLLM's own Rust front end, with our core as the engine that it starts."""

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.interop.openai_api import ApiError
from tests.interop.program import PATIENCE_S
from tests.interop.reference import (
    CAPITAL,
    CHAT_CASES,
    ITALY,
    NUM_TOKENS,
    STORY,
    TEXT_CASES,
    check_prompt,
    check_tokens,
)
from tests.interop.vllm_rs import MODEL, FrontEnd, messages, serving_child

pytestmark = pytest.mark.interop

NUM_SEATS = 2
"""Requests that run at once. Fill them with endless ones, and whoever comes is served only if these are aborted."""
DEVELOPER = {"VLLM_SERVER_DEV_MODE": "1"}
ENDLESS = {"max_tokens": 8000, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def front_end(vllm_rs_program: Path) -> Iterator[FrontEnd]:
    """One for all tests that leave it as it was."""
    with serving_child(vllm_rs_program, "--max-num-seqs", str(NUM_SEATS), environment=DEVELOPER) as front_end:
        yield front_end


def _greedy(num_tokens: int = NUM_TOKENS, **others: Any) -> dict[str, Any]:
    return {"temperature": 0, "max_tokens": num_tokens, "return_token_ids": True, **others}


def _completed(front_end: FrontEnd, case: dict[str, Any]) -> None:
    (choice,) = front_end.api.complete(case["prompt_text"], **_greedy(logprobs=1))["choices"]
    assert choice["prompt_token_ids"] == case["prompt_token_ids"]
    check_tokens(case, choice["token_ids"], choice["logprobs"]["token_logprobs"])


def test_every_text_case_gives_its_tokens_and_logprobs_two_at_a_time(front_end: FrontEnd) -> None:
    """Over /v1/completions."""
    with ThreadPoolExecutor(NUM_SEATS) as pool:
        list(pool.map(_completed, itertools.repeat(front_end), TEXT_CASES))


def test_every_chat_case_gives_its_tokens_and_logprobs(front_end: FrontEnd) -> None:
    """Over /v1/chat/completions: the model folder that we leave has what a genuine front end needs of it."""
    for case in CHAT_CASES:
        answer = front_end.api.chat(case["messages"], **_greedy(logprobs=True, top_logprobs=1))
        (choice,) = answer["choices"]
        assert answer["prompt_token_ids"] == case["prompt_token_ids"]
        check_tokens(case, choice["token_ids"], [token["logprob"] for token in choice["logprobs"]["content"]])


def test_a_prompt_is_scored_as_in_the_reference(front_end: FrontEnd) -> None:
    """Prompt log-probabilities, which travel as tensors."""
    (choice,) = front_end.api.complete(STORY["prompt_token_ids"], **_greedy(1, prompt_logprobs=0))["choices"]
    scored = [None if position is None else next(iter(position.values())) for position in choice["prompt_logprobs"]]
    check_prompt(STORY, [_logprob(position) for position in scored])


def _logprob(position: Any) -> float | None:
    """A number, or a map that also has the rank, depending on the release."""
    return position["logprob"] if isinstance(position, dict) else position


def test_a_streamed_chat_is_the_unary_one_in_pieces(front_end: FrontEnd) -> None:
    """Up to the end of the sequence, with its usage."""
    with front_end.api.stream_chat(ITALY["messages"], temperature=0, max_tokens=30) as stream:
        events = list(stream)
    choices = [choice for event in events for choice in event["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == ITALY["greedy_text"]
    assert choices[-1]["finish_reason"] == "stop"
    assert events[-1]["usage"]["prompt_tokens"] == len(ITALY["prompt_token_ids"])
    assert events[-1]["usage"]["completion_tokens"] == len(ITALY["greedy_token_ids"])


def test_generation_ends_at_the_limit_and_at_stop_tokens(front_end: FrontEnd) -> None:
    """max_tokens, and a token of the client's choice, which the core finds."""
    (at_limit,) = front_end.api.complete(CAPITAL["prompt_text"], **_greedy(3))["choices"]
    assert (at_limit["finish_reason"], at_limit["text"]) == ("length", " Paris.\n")
    stop_token_id = CAPITAL["greedy_token_ids"][2]
    options = _greedy(30, stop_token_ids=[stop_token_id])
    (at_token,) = front_end.api.complete(CAPITAL["prompt_text"], **options)["choices"]
    assert (at_token["finish_reason"], at_token["stop_reason"]) == ("stop", stop_token_id)


def test_a_stop_string_ends_the_text_before_it_and_the_request_in_the_core(front_end: FrontEnd) -> None:
    """The front end finds it and sends ABORT: as many endless requests as there are seats leave them to the next."""
    for _ in range(NUM_SEATS):
        (choice,) = front_end.api.complete(CAPITAL["prompt_text"], stop=["answer"], **ENDLESS)["choices"]
        assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (" Paris.\n\nThe ", "stop", "answer")
    _completed(front_end, CAPITAL)


def test_a_client_that_goes_away_leaves_its_seat_to_the_next(front_end: FrontEnd) -> None:
    """ABORT reaches the core. Of a stream: vllm-rs may overlook who leaves without having waited for its answer."""
    for _ in range(NUM_SEATS):
        with front_end.api.stream_complete(STORY["prompt_text"], **ENDLESS) as stream:
            next(stream), next(stream)
    _completed(front_end, CAPITAL)


def test_a_request_that_the_core_refuses_is_an_error_of_its_own(front_end: FrontEnd) -> None:
    """The others go on."""
    with front_end.api.stream_complete(STORY["prompt_text"], **ENDLESS) as stream:
        next(stream)
        with pytest.raises(ApiError):
            front_end.api.complete(CAPITAL["prompt_text"], **_greedy(logit_bias={"999999": 1}))
        _completed(front_end, CAPITAL)
        assert next(stream)["choices"]
    assert front_end.api.get("/health") == ""


def test_the_grpc_service_gives_the_reference_tokens(front_end: FrontEnd, vllm_version: str) -> None:
    """In one answer, and streamed up to the end of the sequence."""
    prompt = messages.TokenIds(ids=ITALY["prompt_token_ids"])
    options = messages.Response(output_token_ids=True, output_logprobs=True)
    request = messages.GenerateRequest(
        model=MODEL, token_ids=prompt, stopping=messages.Stopping(max_new_tokens=30), response=options, temperature=0
    )
    with front_end.generate(vllm_version) as service:
        outputs = service.Generate(request, timeout=PATIENCE_S).outputs
        pieces = [answer.outputs for answer in service.GenerateStream(request, timeout=PATIENCE_S)]
    assert outputs.finish_info.eos_token_id == ITALY["greedy_token_ids"][-1]
    check_tokens(ITALY, outputs.token_ids[:NUM_TOKENS], outputs.logprobs[:NUM_TOKENS])
    assert [token_id for piece in pieces for token_id in piece.token_ids] == list(outputs.token_ids)
    assert "".join(piece.text for piece in pieces) == outputs.text == ITALY["greedy_text"]


def test_a_cancelled_grpc_call_leaves_its_seat_to_the_next(front_end: FrontEnd, vllm_version: str) -> None:
    """ABORT reaches the core here too."""
    stopping = messages.Stopping(max_new_tokens=8000, ignore_eos=True)
    request = messages.GenerateRequest(model=MODEL, text=STORY["prompt_text"], stopping=stopping)
    with front_end.generate(vllm_version) as service:
        for _ in range(NUM_SEATS):
            stream = service.GenerateStream(request, timeout=PATIENCE_S)
            next(stream), next(stream)
            stream.cancel()
            with pytest.raises(grpc.RpcError):
                list(stream)
    _completed(front_end, CAPITAL)


def test_the_core_s_statistics_are_among_the_front_end_s_metrics(front_end: FrontEnd) -> None:
    """What its scheduler and its prefix cache have counted."""
    before = _metrics(front_end)
    _completed(front_end, STORY)
    after = _metrics(front_end)
    queries = "vllm:prefix_cache_queries_total"
    assert after[queries] - before[queries] == len(STORY["prompt_token_ids"])
    assert after["vllm:num_requests_waiting"] == 0


def test_the_front_end_s_developer_routes_do_their_work_in_the_core(front_end: FrontEnd) -> None:
    """Sleep and wake-up, pause and resume, the prefix cache's reset: utility calls.

    The versions expect different results of wake_up: a first request tells the core which it is.
    """
    _completed(front_end, CAPITAL)
    for route in ("/reset_prefix_cache", "/reset_mm_cache", "/sleep?level=1"):
        front_end.api.post(route)
    assert json.loads(front_end.api.get("/is_sleeping")) == {"is_sleeping": True}
    front_end.api.post("/wake_up")
    assert json.loads(front_end.api.get("/is_sleeping")) == {"is_sleeping": False}
    front_end.api.post("/pause")
    assert json.loads(front_end.api.get("/is_paused")) == {"is_paused": True}
    front_end.api.post("/resume")
    _completed(front_end, CAPITAL)


def _metrics(front_end: FrontEnd) -> dict[str, float]:
    lines = [line for line in front_end.api.get("/metrics").splitlines() if line and not line.startswith("#")]
    return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}
