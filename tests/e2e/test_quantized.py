"""A server as it is by default, with weights that stay quantized: an answer has the same bits, come what may."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from sluicegate_client import AsyncClient, Client, Delta, Generation, TokenLogprobs
from tests.e2e.server import Server, serving
from tests.e2e.test_resume import core_of
from tests.model_files import SMOLLM2_CASES as CASES

CLEAR_MARGIN = 0.5
"""Above this log-probability gap to the second best token, activations of 8 bits must not change the greedy one.

They do at 0.48 (french), as llama.cpp's kernels do on other prompts with this file.
"""
SMALL_KV_CACHE = "7MiB"
"""19 blocks of 16 tokens in float16; all cases together need about 45, the longest alone 7."""
OPTIONS: list[dict[str, Any]] = [
    {
        **({"chat": case["messages"]} if "messages" in case else {"prompt": case["prompt_text"]}),
        "max_tokens": len(case["greedy_token_ids"]),
        "temperature": 0,
        "logprobs": 5,
    }
    for case in CASES
]
SEEDED: list[dict[str, Any]] = [
    {**options, "temperature": 0.9, "top_p": 0.95, "seed": seed, "max_tokens": 24}
    for seed, options in enumerate(OPTIONS)
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(quantization="auto") as server:
        yield server


@pytest.fixture(scope="module")
def alone(server: Server) -> list[Generation]:
    """What each case gives when nobody else is there."""
    with Client(server.address) as client:
        return [client.generate(**options) for options in OPTIONS]


async def all_at_once(address: str, asked: Sequence[dict[str, Any]], **options: Any) -> list[Generation]:
    async with AsyncClient(address) as client:
        return await asyncio.gather(*(client.generate(**{**each, **options}) for each in asked))


def check_same(found: Sequence[Generation], expected: Sequence[Generation]) -> None:
    """Tokens, and log-probabilities to the bit: floats are compared as they are."""
    for one, other in zip(found, expected, strict=True):
        assert (one.token_ids, one.logprobs, one.text) == (other.token_ids, other.logprobs, other.text)


def test_tokens_are_the_references_where_its_margin_is_clear(alone: list[Generation]) -> None:
    """Up to the first step at which the two best tokens of the float32 reference are near each other."""
    for case, generation in zip(CASES, alone, strict=True):
        steps = zip(generation.token_ids, case["greedy_token_ids"], case["top1_margin"], strict=False)
        parted = next((margin for found, expected, margin in steps if found != expected), 0.0)
        assert parted < CLEAR_MARGIN, case["name"]


def test_all_cases_at_once_are_as_alone(server: Server, alone: list[Generation]) -> None:
    """With whole prompts computed together, and with their beginnings found in the prefix cache."""
    computed = asyncio.run(all_at_once(server.address, OPTIONS, skip_reading_prefix_cache=True))
    assert sum(generation.usage.num_cached_tokens for generation in computed) == 0
    check_same(computed, alone)
    found = asyncio.run(all_at_once(server.address, OPTIONS))
    assert sum(generation.usage.num_cached_tokens for generation in found) > 0
    check_same(found, alone)


def test_scored_prompts_are_as_alone(server: Server) -> None:
    """Of every prompt token, the same bits."""
    with Client(server.address) as client:
        expected = [client.generate(**options, prompt_logprobs=1) for options in OPTIONS]
    found = asyncio.run(all_at_once(server.address, OPTIONS, prompt_logprobs=1))
    assert [one.prompt_logprobs for one in found] == [other.prompt_logprobs for other in expected]


def test_seeded_answers_are_as_alone(server: Server) -> None:
    """Since the noise is a request's own, and its logits are."""
    with Client(server.address) as client:
        expected = [client.generate(**options) for options in SEEDED]
    check_same(asyncio.run(all_at_once(server.address, [*SEEDED, *OPTIONS]))[: len(SEEDED)], expected)


@pytest.mark.parametrize("flag", ["--num-speculative-tokens=5", "--async-scheduling"])
def test_preempted_requests_and_prompts_in_chunks_are_as_alone(alone: list[Generation], flag: str) -> None:
    """In a KV cache that is too small for them, with at most 64 tokens in a step, and with drafts."""
    small = "--kv-cache-memory", SMALL_KV_CACHE, "--max-model-len", "256", "--max-num-batched-tokens", "64"
    with serving(*small, flag, quantization="auto") as server:
        check_same(asyncio.run(all_at_once(server.address, OPTIONS)), alone)
        assert server.load().num_preemptions > 0


async def through_a_kill(server: Server) -> list[tuple[list[int], list[TokenLogprobs]]]:
    """Tokens and log-probabilities of all cases; the core is killed when each has given some and none has given all."""
    some = [asyncio.Event() for _ in OPTIONS]

    async def read(number: int) -> tuple[list[int], list[TokenLogprobs]]:
        deltas: list[Delta] = []
        async for delta in client.stream(**OPTIONS[number]):
            deltas.append(delta)
            some[number].set()
        assert some[number].is_set()
        return [id for each in deltas for id in each.token_ids], [each for delta in deltas for each in delta.logprobs]

    async with AsyncClient(server.address) as client:
        reading = asyncio.gather(*map(read, range(len(OPTIONS))))
        for event in some:
            await event.wait()
        core_of(server).kill()
        return await reading


def test_a_killed_core_changes_no_answer(server: Server, alone: list[Generation]) -> None:
    """Another one computes prompts and tokens again, in other steps, and goes on with the same bits."""
    found = asyncio.run(through_a_kill(server))
    assert "calls are to go on elsewhere" in server.process.log
    assert found == [(generation.token_ids, generation.logprobs) for generation in alone]
