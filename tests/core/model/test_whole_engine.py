"""Scheduler, KV cache, sampler and a real, tiny model together, with and without drafts: what others got wrong."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from core.config import CacheConfig, SchedulerConfig, SpeculationConfig
from core.engine import EngineCore
from core.executor.in_process import InProcessExecutor
from core.executor.profiler import Profiler
from core.model.model import Model
from core.request_limits import RequestError
from core.wire.messages import EngineCoreOutput, FinishReason
from tests.core.builders import add, run_to_end, tokens_of
from tests.core.model.tiny_model import TINY, random_tokens

BLOCK_SIZE = 4
EOS = 7


@pytest.fixture(scope="module")
def executor(tiny: Model) -> Iterator[InProcessExecutor]:
    executor = InProcessExecutor(lambda: tiny, Profiler(None))
    yield executor
    executor.shutdown()


@pytest.fixture(params=[0, 4], ids=["plain", "drafting"])
def num_speculative_tokens(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


def engine_of(
    executor: InProcessExecutor,
    num_speculative_tokens: int,
    num_blocks: int = 100,
    caching: bool = True,
    budget: int = 64,
) -> EngineCore:
    memory = num_blocks * BLOCK_SIZE * executor.model_info.kv_bytes_per_token
    speculation = SpeculationConfig(num_speculative_tokens, prompt_lookup_min=1)
    scheduler = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=budget, speculation=speculation)
    return EngineCore(executor, CacheConfig(BLOCK_SIZE, memory, caching), scheduler, max_model_len=64)


def ask(engine: EngineCore, prompt: Sequence[int], **params: Any) -> list[EngineCoreOutput]:
    add(engine, "r", prompt, **({"temperature": 0.0} | params))
    return run_to_end(engine)["r"]


@pytest.mark.parametrize("min_tokens", [0, 1, 4])
def test_a_model_that_wants_to_end_gives_exactly_min_tokens_before(
    executor: InProcessExecutor, num_speculative_tokens: int, min_tokens: int
) -> None:
    """EOS has a bias of +100: that many other tokens, whatever the prompt's length, then EOS."""
    engine = engine_of(executor, num_speculative_tokens)
    params = {"min_tokens": min_tokens, "eos_token_id": EOS, "all_stop_token_ids": [EOS], "logit_bias": {EOS: 100.0}}
    outputs = ask(engine, random_tokens(9, TINY.vocab_size), max_tokens=20, **params)
    *others, last = tokens_of(outputs)
    assert (len(others), last, outputs[-1].finish_reason) == (min_tokens, EOS, FinishReason.STOP)
    assert EOS not in others


@pytest.mark.parametrize("length", [11, 12, 13], ids=["k blocks - 1", "k blocks", "k blocks + 1"])
@pytest.mark.parametrize("caching", [True, False])
def test_a_prefix_cache_hit_changes_no_greedy_token(
    executor: InProcessExecutor, num_speculative_tokens: int, length: int, caching: bool
) -> None:
    """The same prompt four times: the same tokens, its cached ones reported, and at least one computed."""
    engine = engine_of(executor, num_speculative_tokens, caching=caching)
    prompt = random_tokens(length, TINY.vocab_size)
    answers = [ask(engine, prompt, max_tokens=12) for _ in range(4)]
    assert [tokens_of(outputs) for outputs in answers] == [tokens_of(answers[0])] * 4
    stats = [outputs[0].prefill_stats for outputs in answers]
    cached = [each.num_cached_tokens for each in stats if each is not None]
    assert cached == [0, *[(length - 1) // BLOCK_SIZE * BLOCK_SIZE * caching] * 3]


def scores(outputs: Sequence[EngineCoreOutput]) -> list[np.ndarray[Any, Any]]:
    scored = outputs[0].new_prompt_logprobs_tensors
    assert scored is not None
    assert all(output.new_prompt_logprobs_tensors is None for output in outputs[1:])
    return [part.array for part in scored[:3]]


@pytest.mark.parametrize("budget", [64, 5], ids=["whole", "chunks"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["longer first", "shorter first"])
def test_a_scored_prompt_is_that_of_a_cold_engine(
    executor: InProcessExecutor, num_speculative_tokens: int, order: tuple[int, int], budget: int
) -> None:
    """Two prompts that begin alike, in either order, each cached before and beside others that take its blocks away."""
    whole = random_tokens(22, TINY.vocab_size)
    prompts = [whole, [*whole[:13], 1, 2, 3]]
    cold = [ask(engine_of(executor, 0), prompt, max_tokens=6, prompt_logprobs=1) for prompt in prompts]
    engine = engine_of(executor, num_speculative_tokens, num_blocks=14, budget=budget)
    for which in order:
        ask(engine, prompts[which], max_tokens=1)
    for which in order:
        add(engine, f"r{which}", prompts[which], max_tokens=6, temperature=0.0, prompt_logprobs=1)
        add(engine, f"other {which}", whole[5:12], max_tokens=20, temperature=0.0)
    received = run_to_end(engine)
    assert engine.scheduler.num_preemptions > 0
    for which in order:
        warm = received[f"r{which}"]
        assert tokens_of(warm) == tokens_of(cold[which])
        (ids, logprobs, ranks), (cold_ids, cold_logprobs, cold_ranks) = scores(warm), scores(cold[which])
        assert len(ids) == len(prompts[which]) - 1
        assert (ids.tolist(), ranks.tolist()) == (cold_ids.tolist(), cold_ranks.tolist())
        np.testing.assert_allclose(logprobs, cold_logprobs, atol=1e-5)


def test_a_prompt_as_long_as_the_context_allows_gets_one_token(
    executor: InProcessExecutor, num_speculative_tokens: int
) -> None:
    """One less than ``max_model_len``; those that leave no room are refused with both numbers."""
    engine = engine_of(executor, num_speculative_tokens)
    outputs = ask(engine, random_tokens(63, TINY.vocab_size), max_tokens=None)
    assert [len(output.new_token_ids) for output in outputs] == [1]
    assert outputs[0].finish_reason is FinishReason.LENGTH
    for length in (64, 65):
        with pytest.raises(RequestError, match=rf"fewer tokens than max_model_len \(64\).* got {length}"):
            add(engine, "too long", random_tokens(length, TINY.vocab_size))


def test_a_prompt_larger_than_the_kv_cache_is_refused_and_nobody_waits_behind_it(
    executor: InProcessExecutor, num_speculative_tokens: int
) -> None:
    """Though the context would allow it."""
    engine = engine_of(executor, num_speculative_tokens, num_blocks=9)
    with pytest.raises(RequestError, match="must fit the KV cache of 32 tokens, got 40"):
        add(engine, "too long", random_tokens(40, TINY.vocab_size))
    assert len(tokens_of(ask(engine, [1, 2, 3], max_tokens=5))) == 5
