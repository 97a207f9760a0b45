"""The tokens that a correct float32 model gives, over gRPC, however the scheduler cuts the work."""

import asyncio
from typing import Any

import pytest

from sluicegate_client import AsyncClient, Client, Generation
from tests.e2e.server import Server, serving
from tests.model_files import SMOLLM2_CASES as CASES

CLEAR_MARGIN = 0.02
"""Below this log-probability gap to the second best token, two correct implementations may differ."""
LOGPROB_TOLERANCE = 0.02
SMALL_KV_CACHE = "14MiB"
"""19 blocks of 16 tokens in float32; all cases together need about 45, the longest alone 7."""


def _prompt(case: dict[str, Any]) -> dict[str, Any]:
    return {"chat": case["messages"]} if "messages" in case else {"prompt": case["prompt_text"]}


def _options(case: dict[str, Any]) -> dict[str, Any]:
    return {**_prompt(case), "temperature": 0, "max_tokens": len(case["greedy_token_ids"]), "logprobs": 1}


def _check(case: dict[str, Any], generation: Generation) -> None:
    """Compares up to the first step that is not clear, if the tokens part there."""
    expected = case["greedy_token_ids"]
    for step, position in enumerate(generation.logprobs):
        if position.token_id != expected[step]:
            assert case["top1_margin"][step] < CLEAR_MARGIN, (case["name"], step, generation.token_ids)
            return
        if step < len(case["top5"]):
            expected_logprob = case["top5"][step][0][1]
            assert position.logprob == pytest.approx(expected_logprob, abs=LOGPROB_TOLERANCE), (case["name"], step)
    assert generation.token_ids == expected


def _check_prompt(case: dict[str, Any], generation: Generation) -> None:
    first, *others = generation.prompt_logprobs
    assert (first.token_id, first.logprob, first.top) == (0, 0, {})
    assert [position.token_id for position in others] == case["prompt_token_ids"][1:]
    expected = case["prompt_logprobs"][1:]
    assert [position.logprob for position in others] == pytest.approx(expected, abs=LOGPROB_TOLERANCE), case["name"]
    assert all((position.rank == 1) == (position.token_id in position.top) for position in others)


async def _all_at_once(address: str, **options: Any) -> list[Generation]:
    async with AsyncClient(address) as client:
        return await asyncio.gather(*(client.generate(**_options(case), **options) for case in CASES))


def test_every_prompt_is_tokenized_as_in_the_reference(client: Client) -> None:
    """Plain text and chats."""
    for case in CASES:
        tokens = client.tokenize(chat=case["messages"]) if "messages" in case else client.tokenize(case["prompt_text"])
        assert tokens == case["prompt_token_ids"], case["name"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_every_case_gives_its_tokens_alone(client: Client, case: dict[str, Any]) -> None:
    """Greedy, with log-probabilities."""
    _check(case, client.generate(**_options(case)))


def test_all_cases_at_once_give_their_tokens_with_a_cold_and_a_warm_prefix_cache(server: Server) -> None:
    """A batch changes nothing, nor do blocks found in the cache."""
    for _ in range(2):
        for case, generation in zip(CASES, asyncio.run(_all_at_once(server.address)), strict=True):
            _check(case, generation)


def test_prompts_are_scored_as_in_the_reference_with_a_warm_prefix_cache(server: Server) -> None:
    """Every prompt token, although the cache holds the prompts; and the tokens that follow are the same."""
    asyncio.run(_all_at_once(server.address))
    for case, generation in zip(CASES, asyncio.run(_all_at_once(server.address, prompt_logprobs=1)), strict=True):
        _check_prompt(case, generation)
        _check(case, generation)
        assert generation.usage.num_cached_tokens == 0


def test_all_cases_at_once_give_their_tokens_without_a_prefix_cache() -> None:
    """And the prompts their log-probabilities."""
    with serving("--no-enable-prefix-caching") as server:
        for case, generation in zip(CASES, asyncio.run(_all_at_once(server.address, prompt_logprobs=1)), strict=True):
            _check_prompt(case, generation)
            _check(case, generation)


@pytest.mark.parametrize("flag", ["--num-speculative-tokens=5", "--async-scheduling"])
def test_all_cases_at_once_give_their_tokens_in_chunks_and_a_kv_cache_that_is_too_small_for_them(flag: str) -> None:
    """Requests are preempted and computed again, their prompts without the prefix cache, and end the same."""
    small = "--kv-cache-memory", SMALL_KV_CACHE, "--max-model-len", "256", "--max-num-batched-tokens", "64"
    with serving(*small, flag) as server:
        for case, generation in zip(CASES, asyncio.run(_all_at_once(server.address, prompt_logprobs=1)), strict=True):
            _check_prompt(case, generation)
            _check(case, generation)
        load = server.load()
        assert load.num_preemptions > 0
        assert load.kv_cache_usage == 0
