"""Prompts that come while others decode: those get their tokens in time, and nobody waits for ever."""

from itertools import pairwise

import pytest

from core.engine import EngineCore
from core.step_pace import MIN_PREFILL_TOKENS
from tests.core.builders import add, expected_tokens, flatten, make_engine, run_to_end, tokens_of
from tests.core.recording_executor import TimedExecutor

LONG = [i % 900 for i in range(1800)]
BASE_S, TOKEN_S = 0.003, 0.0002


def make_timed(
    max_itl_stretch: float = 2.5, async_scheduling: bool = False, token_s: float = TOKEN_S
) -> tuple[EngineCore, TimedExecutor]:
    """Steps of up to 512 tokens."""
    executor = TimedExecutor(BASE_S, token_s, runs_late=async_scheduling)
    engine = make_engine(
        num_blocks=600,
        block_size=16,
        max_num_seqs=64,
        max_num_batched_tokens=512,
        max_model_len=2048,
        async_scheduling=async_scheduling,
        max_itl_stretch=max_itl_stretch,
        executor=executor,
        clock=executor.clock,
    )
    return engine, executor


def arrivals(engine: EngineCore, executor: TimedExecutor, request_id: str, count: int) -> list[float]:
    """When the next ``count`` tokens of a request come."""
    times: list[float] = []
    while len(times) < count:
        if request_id in flatten([engine.step()[0]]):
            times.append(executor.now_s)
    return times


def itls(times: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


def flow(engine: EngineCore, executor: TimedExecutor, num_streams: int = 1, num_tokens: int = 30) -> float:
    """Streams that decode, each of ``num_tokens`` so far; the time between two of their tokens."""
    for number in range(num_streams):
        add(engine, f"stream{number}", [number, 1, 2], max_tokens=1000)
    return itls(arrivals(engine, executor, f"stream{num_streams - 1}", num_tokens))[-1]


@pytest.mark.parametrize("num_streams", [1, 4, 32])
@pytest.mark.parametrize("async_scheduling", [False, True], ids=["one by one", "overlapping"])
def test_a_long_prompt_stretches_the_time_between_tokens_only_so_far(num_streams: int, async_scheduling: bool) -> None:
    """1,800 tokens: at most 2.5 times as far apart, 36 times without a bound; and it takes less than twice as long."""
    engine, executor = make_timed(async_scheduling=async_scheduling)
    quiet = flow(engine, executor, num_streams)
    start = executor.now_s
    add(engine, "long", LONG, max_tokens=3)
    times = [start]
    received = []
    while len(received) < 3:
        outputs = flatten([engine.step()[0]])
        assert {f"stream{number}" for number in range(num_streams)} <= outputs.keys()
        times.append(executor.now_s)
        received += [outputs["long"]] if "long" in outputs else []
    assert max(itls(times)) <= 2.5 * quiet + 2 * TOKEN_S
    assert times[-1] - start < 2 * TOKEN_S * len(LONG) * (1 + num_streams / 20)
    assert tokens_of(received) == expected_tokens(LONG, 3)


def test_without_a_bound_a_step_has_all_its_tokens() -> None:
    """``max_itl_stretch`` 0."""
    engine, executor = make_timed(max_itl_stretch=0)
    flow(engine, executor)
    add(engine, "long", LONG, max_tokens=1)
    first = len(executor.steps)
    run_to_end(engine)
    assert [executor.steps[number].get("long") for number in range(first, first + 4)] == [511, 511, 511, 267]


def test_when_nobody_decodes_a_step_has_all_its_tokens() -> None:
    """Though much was learned before."""
    engine, executor = make_timed()
    flow(engine, executor)
    engine.abort_requests(["stream0"])
    add(engine, "long", LONG, max_tokens=1)
    first = len(executor.steps)
    run_to_end(engine)
    assert [executor.steps[number].get("long") for number in range(first, first + 4)] == [512, 512, 512, 264]


@pytest.mark.parametrize("head_start", [0, 1, 3])
def test_a_burst_is_computed_at_full_speed(head_start: int) -> None:
    """32 requests, of which the first is ahead by some steps: as many steps as without a bound."""
    num_steps = []
    for max_itl_stretch in (0, 2.5):
        engine, executor = make_timed(max_itl_stretch)
        flow(engine, executor)
        engine.abort_requests(["stream0"])
        run_to_end(engine)
        first = len(executor.steps)
        for number in range(32):
            add(engine, f"r{number}", [number, *range(127)], max_tokens=128)
            for _ in range(head_start if number == 0 else 0):
                engine.step()
        run_to_end(engine)
        num_steps.append(len(executor.steps) - first)
    assert num_steps[0] == num_steps[1] <= 127 + 10 + head_start


def test_newcomers_share_what_there_is_and_decode_beside_it() -> None:
    """In their order; from its first token on a newcomer is one of those who decode."""
    engine, executor = make_timed()
    add(engine, "first", LONG, max_tokens=1)  # from which it learns what prefill costs
    run_to_end(engine)
    flow(engine, executor)
    for number in range(3):
        add(engine, f"new{number}", [number, *range(39)], max_tokens=20)
    first = len(executor.steps)
    arrivals(engine, executor, "new2", 1)
    shares = [[scheduled.get(f"new{number}", 0) for number in range(3)] for scheduled in executor.steps[first:]]
    assert [sum(share > 0 for share in step) for step in shares] == [1, 2, 2, 3, 3, 3]
    prefill = [[share for share in step if share > 1] for step in shares]
    assert all(20 <= sum(tokens) <= 27 for tokens in prefill[:-1])
    assert all(step[0] == 1 for step in shares[2:])


def test_those_who_came_with_an_answer_are_no_newcomers_to_it() -> None:
    """The prompt that was there first goes on at full speed, beside it the late one has its part."""
    engine, executor = make_timed()
    flow(engine, executor, num_tokens=5)
    add(engine, "early", LONG, max_tokens=1)
    engine.step()
    add(engine, "late", [1, *LONG], max_tokens=1)
    first = len(executor.steps)
    for _ in range(3):
        engine.step()
    assert executor.steps[first]["early"] == 511


def test_a_newcomer_to_one_of_two_answers_is_held_back_for_that_one() -> None:
    """It came with the second, which is in full flow too by now, and after the first."""
    engine, executor = make_timed()
    flow(engine, executor)
    add(engine, "second", [7, 8], max_tokens=1000)
    add(engine, "long", [1, *LONG], max_tokens=1)
    arrivals(engine, executor, "second", 20)
    assert max(scheduled.get("long", 0) for scheduled in executor.steps) <= 30


def test_newcomers_that_decode_all_get_their_token() -> None:
    """More of them than the tokens of prefill that a step has for newcomers."""
    engine, executor = make_timed(max_itl_stretch=1.1)
    flow(engine, executor)
    for number in range(40):
        add(engine, f"new{number}", [number, 1, 2], max_tokens=1000)
    add(engine, "long", LONG, max_tokens=1)
    for _ in range(60):
        engine.step()
    assert len(executor.steps[-1]) == 42


def test_prefill_comes_to_its_end_however_slow_it_is() -> None:
    """A token of it costs ten times what a whole step of decoding does: four in each step all the same."""
    engine, executor = make_timed(token_s=10 * BASE_S)
    flow(engine, executor)
    add(engine, "long", LONG[:16], max_tokens=1)
    first = len(executor.steps)
    arrivals(engine, executor, "long", 1)
    assert [scheduled["long"] for scheduled in executor.steps[first:]] == [MIN_PREFILL_TOKENS] * 4
