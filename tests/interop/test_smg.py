"""The Shepherd Model Gateway, with our core behind its sockets and no gateway of ours between them."""

import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.openai_api import OpenAIApi
from tests.interop.program import Program
from tests.interop.reference import (
    CAPITAL,
    CHAT_CASES,
    ITALY,
    LOGPROB_TOLERANCE,
    NUM_TOKENS,
    STORY,
    TEXT_CASES,
)
from tests.interop.smg import listening_for_core
from tests.interop.vllm_rs import core

pytestmark = pytest.mark.interop

NUM_SEATS = 2


@dataclass(frozen=True)
class Served:
    """The gateway with its core."""

    program: Program
    core: Program
    api: OpenAIApi


@pytest.fixture(scope="module")
def front_end(smg_program: Path) -> Iterator[Served]:
    """One for all tests; the last one ends it."""
    with (
        tempfile.TemporaryDirectory(prefix="sg") as folder,
        listening_for_core(smg_program, Path(folder)) as (program, api, dial),
        core("--max-num-seqs", str(NUM_SEATS), *dial) as engine,
    ):
        program.wait_until_served(f"http://127.0.0.1:{api.port}/readiness")
        yield Served(program, engine, api)


def _check_completed(api: OpenAIApi, case: dict) -> None:
    answer = api.complete(case["prompt_text"], temperature=0, max_tokens=NUM_TOKENS)
    assert answer["usage"]["completion_tokens"] == NUM_TOKENS
    assert case["greedy_text"].startswith(answer["choices"][0]["text"].rstrip("\N{REPLACEMENT CHARACTER}"))


def test_every_text_case_gives_its_text(front_end: Served) -> None:
    """Over /v1/completions."""
    for case in TEXT_CASES:
        _check_completed(front_end.api, case)


def test_every_chat_case_gives_its_logprobs(front_end: Served) -> None:
    """Over /v1/chat/completions."""
    for case in CHAT_CASES:
        options = {"temperature": 0, "max_tokens": NUM_TOKENS, "logprobs": True, "top_logprobs": 1}
        (choice,) = front_end.api.chat(case["messages"], **options)["choices"]
        assert case["greedy_text"].startswith(choice["message"]["content"])
        expected = [best[0][1] for best in case["top5"]]
        logprobs = [token["logprob"] for token in choice["logprobs"]["content"]]
        assert logprobs == pytest.approx(expected, abs=LOGPROB_TOLERANCE), case["name"]


def test_a_streamed_chat_is_the_reference_text_in_pieces(front_end: Served) -> None:
    """Up to the end of the sequence."""
    with front_end.api.stream_chat(ITALY["messages"], temperature=0, max_tokens=30) as stream:
        choices = [choice for event in stream for choice in event["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == ITALY["greedy_text"]
    assert choices[-1]["finish_reason"] == "stop"


def test_a_stop_string_ends_the_text_before_it(front_end: Served) -> None:
    """The gateway finds it."""
    options = {"temperature": 0, "max_tokens": 30, "stop": ["answer"]}
    (choice,) = front_end.api.complete(CAPITAL["prompt_text"], **options)["choices"]
    assert (choice["text"], choice["finish_reason"]) == (" Paris.\n\nThe ", "stop")


def test_a_client_that_goes_away_leaves_its_seat_to_the_next(front_end: Served) -> None:
    """ABORT reaches the core: it has no seat left otherwise."""
    for _ in range(NUM_SEATS):
        with front_end.api.stream_complete(
            STORY["prompt_text"], max_tokens=8000, ignore_eos=True, temperature=0
        ) as stream:
            next(stream), next(stream)
    _check_completed(front_end.api, CAPITAL)


def test_sigterm_ends_both_with_0(front_end: Served) -> None:
    """The core first: it owes the gateway nothing."""
    for program in (front_end.core, front_end.program):
        program.send_signal(signal.SIGTERM)
        assert program.wait() == 0
