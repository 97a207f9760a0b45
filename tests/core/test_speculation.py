"""Drafts change how many tokens a step gives, never which tokens a request gets, nor what others find in the cache."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from core.config import SchedulerConfig, SpeculationConfig
from core.draft_history import DraftHistory
from core.engine import EngineCore
from core.executor.fake import FakeExecutor
from core.kv_cache import KVCache
from core.request import Request, RequestStatus
from core.speculation import Speculation
from core.step import Step
from core.wire.messages import EngineCoreOutput, FinishReason
from core.wire.sampling_params import RepetitionDetection, StructuredOutputs
from core.wire.stats import SpecDecodingStats
from tests.core.builders import add, expected_tokens, make_engine, make_request, run_to_end, step, tokens_of

CYCLE = list(range(1, 9))
PROMPT = [*CYCLE, 1, 2]
ANSWER = (CYCLE * 5)[2:34]
"""What a request has repeated and will repeat: every draft is right."""


def drafting(script: Sequence[int] = ANSWER, num_speculative_tokens: int = 4, **options: Any) -> EngineCore:
    """An engine whose request "r" answers as ``script`` says, and drafts."""
    masked = options.pop("masked", ())
    executor = FakeExecutor(scripted_tokens={"r": script}, masked_request_ids=masked)
    return make_engine(num_speculative_tokens=num_speculative_tokens, executor=executor, **options)


def run(engine: EngineCore, prompt: Sequence[int] = PROMPT, **params: Any) -> list[EngineCoreOutput]:
    add(engine, "r", prompt, **params)
    outputs = run_to_end(engine)["r"]
    assert engine.scheduler.kv_cache.is_unused
    return outputs


def lengths(outputs: Sequence[EngineCoreOutput]) -> list[int]:
    return [len(output.new_token_ids) for output in outputs]


def stats_of_run(engine: EngineCore) -> list[SpecDecodingStats]:
    found = []
    while engine.has_requests():
        for message in engine.step()[0].values():
            assert message.scheduler_stats is not None
            if message.scheduler_stats.spec_decoding_stats is not None:
                found.append(message.scheduler_stats.spec_decoding_stats)
        engine.check_integrity()
    return found


def test_right_drafts_give_several_tokens_in_a_step() -> None:
    """The first token comes alone, with the prompt; drafts grow up to four tokens, and the model adds one to each."""
    outputs = run(drafting(), max_tokens=22)
    assert tokens_of(outputs) == ANSWER[:22]
    assert lengths(outputs) == [1, 2, 4, 5, 5, 5]


def test_a_draft_counts_up_to_its_first_wrong_token() -> None:
    """The model's own token takes that one's place."""
    script = [3, 4, 5, 6, 99, 7, 8]
    outputs = run(drafting(script), max_tokens=7)
    assert tokens_of(outputs) == script
    assert lengths(outputs)[:3] == [1, 2, 2]


@pytest.mark.parametrize("num_speculative_tokens", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("wrong", [1, 2, 3, 5, 8])
def test_however_long_the_drafts_and_wherever_they_are_wrong_the_tokens_are_the_same(
    num_speculative_tokens: int, wrong: int
) -> None:
    """And the cached blocks are those of the tokens: who repeats the whole conversation finds it."""
    script = [token_id if i % wrong else 50 + i for i, token_id in enumerate(ANSWER)]
    engine = drafting(script, num_speculative_tokens)
    assert tokens_of(run(engine, max_tokens=30)) == script[:30]
    conversation = [*PROMPT, *script[:30]]
    add(engine, "again", conversation, max_tokens=4)
    outputs = run_to_end(engine)["again"]
    assert tokens_of(outputs) == expected_tokens(conversation, 4)
    assert outputs[0].prefill_stats is not None
    assert outputs[0].prefill_stats.num_cached_tokens == 36  # of 40 tokens: the last is always computed


def test_drafts_of_which_nothing_is_right_are_given_up_for_a_while() -> None:
    """A model that never repeats itself is asked ever less often."""
    engine = drafting([1, 2] * 2)
    add(engine, "r", PROMPT, max_tokens=16, ignore_eos=True)
    assert sum(stats.num_draft_tokens for stats in stats_of_run(engine)) <= 4


@pytest.mark.parametrize(
    ("params", "expected", "reason"),
    [
        ({"stop_token_ids": [5]}, [3, 4, 5], FinishReason.STOP),
        ({"eos_token_id": 6}, [3, 4, 5, 6], FinishReason.STOP),
        ({"max_tokens": 4}, [3, 4, 5, 6], FinishReason.LENGTH),
        ({"stop_token_ids": [5], "min_tokens": 4}, [*ANSWER[:10], 5], FinishReason.STOP),
    ],
    ids=["stop token", "EOS", "length", "not before min_tokens"],
)
def test_nothing_comes_after_the_end(params: dict[str, Any], expected: list[int], reason: FinishReason) -> None:
    """Though it was drafted, right and computed; and its log-probabilities end there too."""
    outputs = run(drafting(), **({"max_tokens": 20, "logprobs": 1} | params))
    assert tokens_of(outputs) == expected
    assert outputs[-1].finish_reason is reason
    for output in outputs:
        assert output.new_logprobs is not None
        assert output.new_logprobs.token_ids[:, 0].tolist() == output.new_token_ids


def test_repetition_ends_a_request_inside_a_draft() -> None:
    """Two copies of a pattern of eight, counted in the output alone."""
    detection = {"max_pattern_size": 8, "min_pattern_size": 8, "min_count": 2}
    outputs = run(drafting(), max_tokens=30, repetition_detection=msgspec.convert(detection, RepetitionDetection))
    assert tokens_of(outputs) == ANSWER[:16]
    assert outputs[-1].finish_reason is FinishReason.REPETITION


def test_a_token_that_cannot_be_ends_the_request_after_those_before_it() -> None:
    """As without drafts: all that was possible goes out first, and the failure alone."""
    outputs = run(drafting(ANSWER[:9], masked={"r"}), max_tokens=20)
    assert tokens_of(outputs) == ANSWER[:9]
    assert (outputs[-1].new_token_ids, outputs[-1].finish_reason) == ([], FinishReason.ERROR)


def test_prompt_logprobs_in_chunks_are_not_disturbed() -> None:
    """They come complete, once, with the first token."""
    outputs = run(drafting(max_num_seqs=2, max_num_batched_tokens=6), max_tokens=12, prompt_logprobs=1)
    assert tokens_of(outputs) == ANSWER[:12]
    scored = [output.new_prompt_logprobs_tensors for output in outputs]
    assert scored[0] is not None
    assert scored[0].token_ids.array[:, 0].tolist() == PROMPT[1:]
    assert scored[1:] == [None] * len(scored[1:])


def test_drafts_take_only_the_tokens_that_a_step_has_left() -> None:
    """A step of 8 tokens: one for the request, its prompt's for the newcomer, and what is left for drafts."""
    engine = drafting(max_num_batched_tokens=8)
    add(engine, "r", PROMPT, max_tokens=20)
    for _ in range(4):
        step(engine)
    add(engine, "new", [31, 32, 33, 34, 35], max_tokens=1)
    scheduled = engine.scheduler.schedule()
    assert scheduled is not None
    assert scheduled.work.num_scheduled_tokens == {"r": 3, "new": 5}
    assert scheduled.work.draft_token_ids == {"r": ANSWER[7:9]}


def test_drafts_take_no_block_from_anybody() -> None:
    """Two requests that fill the pool: they run without drafts where there is no block for them, and nobody yields."""
    engine = drafting(num_blocks=9)
    add(engine, "r", PROMPT, max_tokens=6)
    add(engine, "other", range(50, 60), max_tokens=6)
    received = run_to_end(engine)
    assert tokens_of(received["r"]) == ANSWER[:6]
    assert tokens_of(received["other"]) == expected_tokens(range(50, 60), 6)
    assert engine.scheduler.num_preemptions == 0


def test_a_preempted_request_drafts_on() -> None:
    """Both outgrow the pool; the younger one starts over, with its tokens and without those that it only drafted."""
    executor = FakeExecutor(scripted_tokens={"a": ANSWER, "b": ANSWER})
    engine = make_engine(num_blocks=11, num_speculative_tokens=4, executor=executor, enable_prefix_caching=False)
    for request_id in ("a", "b"):
        add(engine, request_id, PROMPT, max_tokens=24)
    received = run_to_end(engine)
    assert [tokens_of(received[request_id]) for request_id in ("a", "b")] == [ANSWER[:24]] * 2
    assert engine.scheduler.num_preemptions > 0
    assert engine.scheduler.kv_cache.is_unused


def test_a_request_that_is_aborted_while_its_draft_is_computed_leaves_no_trace() -> None:
    """The step's result is for nobody."""
    executor = FakeExecutor(
        scripted_tokens={"r": ANSWER}, on_step=lambda number: engine.aborts_queue.put(["r"] if number == 2 else [])
    )
    engine = make_engine(num_speculative_tokens=4, executor=executor)
    add(engine, "r", PROMPT, max_tokens=20)
    assert list(step(engine)) == ["r"]
    assert run_to_end(engine) == {}
    assert engine.scheduler.kv_cache.is_unused
    assert executor.request_ids == set()


def test_the_statistics_are_those_of_a_step_as_vllm_counts_them() -> None:
    """Drafts, their tokens, those that were right, in all and by position; None when nothing was drafted."""
    engine = drafting([3, 4, 5, 6, 99, 7])
    add(engine, "r", PROMPT, max_tokens=6)
    first, second = stats_of_run(engine)
    assert msgspec.to_builtins(second) == {
        "num_spec_tokens": 4,
        "num_drafts": 1,
        "num_draft_tokens": 2,
        "num_accepted_tokens": 1,
        "num_accepted_tokens_per_pos": [1, 0, 0, 0],
        "num_draft_tokens_per_pos": [1, 1, 0, 0],
    }
    assert (first.num_draft_tokens, first.num_accepted_tokens) == (1, 1)


def running(prompt: Sequence[int], **params: Any) -> Request:
    request = make_request(prompt=prompt, **params)
    request.status = RequestStatus.RUNNING
    return request


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, [3, 4, 5, 6]),
        ({"max_num_tokens": 13}, [3, 4]),
        ({"max_num_tokens": 11}, []),
        ({"structured_outputs": StructuredOutputs(regex="a")}, []),
    ],
    ids=["as many as are wanted", "but for the last", "the last is the model's", "no grammar"],
)
def test_what_is_drafted(params: dict[str, Any], expected: list[int]) -> None:
    """For a request that is at its last token."""
    kv_cache = KVCache(20, 4, None)
    request = running(PROMPT, **params)
    kv_cache.admit(request)
    request.num_scheduled_tokens = len(PROMPT) - 1
    request.draft_history = DraftHistory()
    request.draft_history.judge(num_accepted_tokens=4)
    step = Step(100)
    step.go_on(request, 1, [])
    Speculation(SpeculationConfig(4, 4, 1), kv_cache).fill(step)
    assert step.work.draft_token_ids.get("r", []) == expected
    assert step.work.num_scheduled_tokens == {"r": 1 + len(expected)}
    assert [share.num_draft_tokens for share in step.shares] == [len(expected)]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((-1, 5, 2), r"num_speculative_tokens must be in \[0, 32\], got -1"),
        ((33, 5, 2), r"num_speculative_tokens must be in \[0, 32\], got 33"),
        ((4, 5, 0), "prompt_lookup_min must be at least 1, got 0"),
        ((4, 1, 2), r"prompt_lookup_max must be at least prompt_lookup_min \(2\), got 1"),
    ],
)
def test_a_setting_out_of_bounds_is_refused(values: tuple[int, int, int], text: str) -> None:
    """By name, with the bound."""
    with pytest.raises(ValueError, match=text):
        SpeculationConfig(*values)


def test_not_together_with_async_scheduling() -> None:
    """The error says why."""
    with pytest.raises(ValueError, match="must be 0 with async_scheduling: a draft continues tokens that a step in fl"):
        SchedulerConfig(async_scheduling=True, speculation=SpeculationConfig(4))
