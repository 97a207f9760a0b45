"""A beginning that several prompts share is computed once, also when they come together, and nobody waits in vain."""

from collections.abc import Callable, Sequence

import msgspec
import pytest

from core.config import LoraConfig
from core.engine import EngineCore
from core.executor.fake import FAKE_MODEL
from core.wire.messages import EngineCoreOutput, EngineCoreRequest, LoRARequest
from core.wire.sampling_params import SamplingParams
from tests.core.builders import add, expected_tokens, make_engine, make_message, run_to_end, step, tokens_of
from tests.core.recording_executor import RecordingExecutor

SHARED = list(range(100, 113))
"""Three blocks and a token."""
FIRST, SECOND = [*SHARED, 1, 2, 3], [*SHARED, 4, 5]


def num_cached(outputs: Sequence[EngineCoreOutput]) -> int:
    assert outputs[0].prefill_stats is not None
    return outputs[0].prefill_stats.num_cached_tokens


def add_message(engine: EngineCore, message: EngineCoreRequest) -> None:
    engine.add_request(engine.preprocess_add_request(message))


@pytest.mark.parametrize(
    ("async_scheduling", "budget", "prefill"),
    [
        (False, 512, [512, 512, 512]),
        (True, 512, [512, 512, 32, 1 + 15 * 32]),
        (False, 2048, [1056, 1 + 15 * 32]),
        (True, 2048, [1056, 1, 1 + 15 * 32]),
    ],
    ids=["small steps", "small steps that overlap", "large steps", "large steps that overlap"],
)
def test_sixteen_requests_compute_their_shared_beginning_once(
    async_scheduling: bool, budget: int, prefill: list[int]
) -> None:
    """1,024 shared tokens and 32 of each: 1,536 of prefill in all, though two such prompts would fit into one step."""
    executor = RecordingExecutor(runs_late=True)
    engine = make_engine(
        num_blocks=129,
        block_size=16,
        max_num_seqs=16,
        max_num_batched_tokens=budget,
        max_model_len=2048,
        async_scheduling=async_scheduling,
        executor=executor,
    )
    shared = [i % 900 for i in range(1024)]
    prompts = {f"r{i}": [*shared, *range(i, i + 32)] for i in range(16)}
    for request_id, prompt in prompts.items():
        add(engine, request_id, prompt, max_tokens=16)
    received = run_to_end(engine)
    assert {request_id: tokens_of(outputs) for request_id, outputs in received.items()} == {
        request_id: expected_tokens(prompt, 16) for request_id, prompt in prompts.items()
    }
    assert [num_cached(received[request_id]) for request_id in prompts] == [0] + [1024] * 15
    assert executor.num_tokens == {"r0": 1024 + 32 + 15} | {f"r{i}": 32 + 15 for i in range(1, 16)}
    assert [sum(scheduled.values()) for scheduled in executor.steps[: len(prefill)]] == prefill


def test_those_that_share_nothing_pass_if_nothing_is_left_of_them() -> None:
    """The second waits for the first; the third fits beside it, the fourth does not, the fifth stays behind that."""
    executor = RecordingExecutor()
    engine = make_engine(max_num_batched_tokens=24, executor=executor)
    prompts = {"first": FIRST, "second": SECOND, "third": [7] * 6, "fourth": [8] * 13, "fifth": [9]}
    for request_id, prompt in prompts.items():
        add(engine, request_id, prompt, max_tokens=2)
    received = run_to_end(engine)
    assert executor.steps[:2] == [
        {"first": 16, "third": 6},
        {"first": 1, "third": 1, "second": 3, "fourth": 13, "fifth": 1},
    ]
    assert {i: tokens_of(received[i]) for i in prompts} == {i: expected_tokens(p, 2) for i, p in prompts.items()}


def test_a_prefix_is_found_as_soon_as_it_is_there() -> None:
    """Though the first has a long way to go, the second needs no more of it."""
    executor = RecordingExecutor()
    engine = make_engine(max_num_batched_tokens=16, executor=executor)
    add(engine, "first", [*SHARED, *range(14)], max_tokens=1)
    add(engine, "second", SECOND, max_tokens=1)
    assert num_cached(run_to_end(engine)["second"]) == 12
    assert executor.steps[:2] == [{"first": 16}, {"first": 11, "second": 3}]


def test_who_waits_for_a_prefix_keeps_its_seat() -> None:
    """Two seats: the third could run beside the first, but would keep the second from it."""
    executor = RecordingExecutor()
    engine = make_engine(max_num_seqs=2, executor=executor)
    for request_id, prompt in (("first", FIRST), ("second", SECOND), ("third", [7])):
        add(engine, request_id, prompt, max_tokens=3)
    run_to_end(engine)
    assert [list(scheduled) for scheduled in executor.steps[:3]] == [["first"], *[["first", "second"]] * 2]


def test_three_generations_share_what_each_has_in_common_with_the_one_before() -> None:
    """The third waits for the second, which waits for the first: nothing is computed twice."""
    executor = RecordingExecutor()
    engine = make_engine(executor=executor)
    prompts = {"a": [*SHARED[:8], *range(8)], "b": [*SHARED[:8], *range(50, 66)], "c": [*SHARED[:8], *range(50, 68)]}
    for request_id, prompt in prompts.items():
        add(engine, request_id, prompt, max_tokens=1)
    run_to_end(engine)
    assert executor.num_tokens == {"a": 16, "b": 16, "c": 2}


def abort(engine: EngineCore) -> None:
    engine.abort_requests(["first"])


def reset(engine: EngineCore) -> None:
    engine.call_utility("reset_prefix_cache", [True])


def pause(engine: EngineCore) -> None:
    engine.call_utility("pause_scheduler", ["keep", False])


def sleep(engine: EngineCore) -> None:
    engine.call_utility("sleep", [1, "keep"])


@pytest.mark.parametrize("act", [abort, reset, pause, sleep])
@pytest.mark.parametrize("async_scheduling", [False, True], ids=["one by one", "overlapping"])
def test_nobody_waits_for_what_does_not_come(act: Callable[[EngineCore], None], async_scheduling: bool) -> None:
    """The one that computes is aborted, starts over or stands still: the others get their own tokens."""
    engine = make_engine(max_num_batched_tokens=8, async_scheduling=async_scheduling)
    prompts = {"first": FIRST, "second": SECOND, "third": [*SHARED, 6]}
    for request_id, prompt in prompts.items():
        add(engine, request_id, prompt, max_tokens=3)
    step(engine)
    assert [request.request_id for request in engine.scheduler.waiting] == ["second", "third"]
    act(engine)
    before_wake_up = run_to_end(engine)
    engine.call_utility("wake_up", [])
    after_wake_up = run_to_end(engine)
    for request_id in ("second", "third"):
        outputs = before_wake_up.get(request_id, []) + after_wake_up.get(request_id, [])
        assert tokens_of(outputs) == expected_tokens(prompts[request_id], 3)


def test_what_cannot_be_trusted_is_computed_again() -> None:
    """The logits of the first are no numbers: its blocks are forgotten, and the second goes without them."""
    engine = make_engine(executor=RecordingExecutor(nan_request_ids={"first"}))
    add(engine, "first", FIRST, max_tokens=3)
    add(engine, "second", SECOND, max_tokens=3)
    outputs = run_to_end(engine)["second"]
    assert (num_cached(outputs), tokens_of(outputs)) == (0, expected_tokens(SECOND, 3))


def test_a_prefix_whose_request_gives_way_is_not_waited_for() -> None:
    """Blocks run out while two grow; those that are alike end with their own tokens, whoever was driven out."""
    engine = make_engine(num_blocks=9, max_num_batched_tokens=8)
    prompts = {"old": [1, 2, 3], "first": FIRST, "second": SECOND}
    for request_id, prompt in prompts.items():
        add(engine, request_id, prompt, max_tokens=14)
    received = run_to_end(engine)
    assert engine.scheduler.num_preemptions > 0
    assert {i: tokens_of(received[i]) for i in prompts} == {i: expected_tokens(p, 14) for i, p in prompts.items()}


@pytest.mark.parametrize(
    "fields",
    [
        {"cache_salt": "other"},
        {"lora_request": LoRARequest("a", 1, "/a")},
        {"sampling_params": SamplingParams(max_tokens=2, skip_reading_prefix_cache=True)},
        {"sampling_params": SamplingParams(max_tokens=2, prompt_logprobs=1)},
    ],
    ids=["salt", "adapter", "passes the cache over", "scores its prompt"],
)
def test_who_could_not_go_on_from_it_does_not_wait(fields: dict[str, object]) -> None:
    """The same tokens are not the same blocks, or not for everybody."""
    executor = RecordingExecutor()
    engine = make_engine(executor=executor, lora=LoraConfig())
    engine.call_utility("add_lora", [LoRARequest("a", 1, "/a")])
    add(engine, "first", FIRST, max_tokens=2)
    add_message(engine, make_message("second", SECOND, SamplingParams(max_tokens=2), **fields))
    run_to_end(engine)
    assert executor.steps[0] == {"first": 16, "second": 15}


def test_requests_with_one_adapter_wait_for_each_other() -> None:
    """Theirs are blocks of their own, and those are computed once too."""
    executor = RecordingExecutor()
    engine = make_engine(executor=executor, lora=LoraConfig())
    adapter = LoRARequest("a", 1, "/a")
    for request_id, prompt, lora in (("first", FIRST, adapter), ("second", SECOND, adapter), ("bare", SECOND, None)):
        add_message(engine, make_message(request_id, prompt, SamplingParams(max_tokens=1), lora_request=lora))
    run_to_end(engine)
    assert executor.num_tokens == {"first": 16, "second": 3, "bare": 15}


def test_without_a_cache_nobody_waits() -> None:
    """There is nothing to be found."""
    executor = RecordingExecutor()
    engine = make_engine(enable_prefix_caching=False, executor=executor)
    add(engine, "first", FIRST, max_tokens=1)
    add(engine, "second", SECOND, max_tokens=1)
    run_to_end(engine)
    assert executor.steps[0] == {"first": 16, "second": 15}


@pytest.mark.parametrize(("priority", "num_tokens"), [(-1, 7), (0, 3), (1, 3)])
def test_nobody_waits_for_a_less_important_one(priority: int, num_tokens: int) -> None:
    """It would have to wait for all those that come between: it computes the block that the other has begun."""
    executor = RecordingExecutor()
    engine = make_engine(max_num_batched_tokens=10, scheduling_policy="priority", executor=executor)
    add(engine, "first", FIRST, max_tokens=1)
    step(engine)
    add(engine, "second", SECOND, priority=priority, max_tokens=1)
    run_to_end(engine)
    assert executor.num_tokens == {"first": 16, "second": num_tokens}


@pytest.mark.parametrize("kv_windows", [(None, 6), (5,)])
def test_groups_with_windows_share_too(kv_windows: tuple[int | None, ...]) -> None:
    """The blocks that the first has left behind its window are still there for the second."""
    executor = RecordingExecutor(model_info=msgspec.structs.replace(FAKE_MODEL, kv_windows=kv_windows))
    engine = make_engine(max_num_batched_tokens=8, executor=executor)
    add(engine, "first", FIRST, max_tokens=2)
    add(engine, "second", SECOND, max_tokens=2)
    received = run_to_end(engine)
    assert num_cached(received["second"]) == 12
    assert tokens_of(received["second"]) == expected_tokens(SECOND, 2)
