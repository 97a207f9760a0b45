"""Drafts, from the flag of `serve` to the client: the same answers in fewer steps."""

from typing import Any

import pytest

from sluicegate_client import Client, Generation
from tests.e2e.server import MODEL, Server, serving
from tests.service.metrics.scrape import scrape

QUESTION = "Repeat word for word: The old harbour wall was built in 1843 of granite from the northern hills."
REQUESTS: list[dict[str, Any]] = [
    {"temperature": 0, "max_tokens": 40, "logprobs": 2, "prompt_logprobs": 1},
    {"temperature": 0.7, "seed": 5, "top_p": 0.9, "max_tokens": 30},
    {"temperature": 0, "max_tokens": 40, "stop": ["granite from"]},
    {"temperature": 0, "max_tokens": 30, "repetition_penalty": 1.1, "min_tokens": 20},
]


def answers(address: str) -> list[Generation]:
    chat = [{"role": "user", "content": QUESTION}]
    with Client(address) as client:
        return [client.generate(chat=chat, **request) for request in REQUESTS]


def test_answers_are_the_same_and_the_metrics_tell_of_the_drafts(server: Server) -> None:
    """Greedy, seeded, with a stop string and penalties; log-probabilities as close as two ways to add can be."""
    with serving("--num-speculative-tokens", "5") as drafting:
        expected, drafted = answers(server.address), answers(drafting.address)
        metrics = scrape(drafting.metrics_address)
    assert [answer.text for answer in drafted] == [answer.text for answer in expected]
    assert [answer.token_ids for answer in drafted] == [answer.token_ids for answer in expected]
    assert [answer.finish_reason for answer in drafted] == [answer.finish_reason for answer in expected]
    logprobs = [[position.logprob for position in answers[0].logprobs] for answers in (drafted, expected)]
    assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-3)
    num_drafts, num_draft_tokens, num_accepted_tokens = (
        metrics.engine(f"spec_decode_num_{name}_total", MODEL) for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    assert 0 < num_drafts <= num_draft_tokens
    assert 20 < num_accepted_tokens <= num_draft_tokens
    of_first = metrics.engine("spec_decode_num_accepted_tokens_per_pos_total", MODEL, position="0")
    assert 0 < of_first <= num_drafts
