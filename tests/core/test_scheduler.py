"""The scheduler, through an engine whose fake model notices every wrong block: who runs, who waits, who gives way."""

import pytest

from core.engine import EngineCore
from core.request_limits import RequestError
from core.wire.messages import EventType, FinishReason
from tests.core.builders import add, expected_tokens, flatten, give_up, make_engine, run_to_end, step, tokens_of

PROMPT = list(range(100, 113))


def ids_of_running(engine: EngineCore) -> list[str]:
    return [request.request_id for request in engine.scheduler.running]


def ids_of_waiting(engine: EngineCore) -> list[str]:
    return [request.request_id for request in engine.scheduler.waiting]


def answers(engine: EngineCore) -> dict[str, list[int]]:
    received = {request_id: tokens_of(outputs) for request_id, outputs in run_to_end(engine).items()}
    assert engine.scheduler.kv_cache.is_unused
    return received


def test_requests_of_any_length_run_together_and_do_not_disturb_each_other() -> None:
    """Eight prompts at once: each gets what it would get alone."""
    engine = make_engine()
    prompts = {f"r{i}": list(range(i, 3 * i + 1)) for i in range(8)}
    for request_id, prompt in prompts.items():
        add(engine, request_id, prompt, max_tokens=6)
    assert answers(engine) == {request_id: expected_tokens(prompt, 6) for request_id, prompt in prompts.items()}


def test_a_prompt_larger_than_the_budget_is_computed_in_pieces() -> None:
    """13 tokens at 4 a step: three steps without output, then the same tokens as at once."""
    engine = make_engine(max_num_seqs=2, max_num_batched_tokens=4)
    add(engine, prompt=PROMPT, max_tokens=3)
    assert [len(step(engine)) for _ in range(4)] == [0, 0, 0, 1]
    assert engine.scheduler.requests["r"].output_token_ids == expected_tokens(PROMPT, 1)
    assert answers(engine) == {"r": expected_tokens(PROMPT, 3)[1:]}


def test_a_step_computes_no_more_than_its_budget() -> None:
    """Three prompts of 5 tokens, 8 tokens a step: one and a piece of the next, then the rest."""
    engine = make_engine(max_num_batched_tokens=8)
    for i in range(3):
        add(engine, f"r{i}", range(i, i + 5))
    scheduled = engine.scheduler.schedule()
    assert scheduled is not None
    assert scheduled.work.num_scheduled_tokens == {"r0": 5, "r1": 3}


def test_decodes_come_before_a_long_prefill() -> None:
    """While a long prompt is computed in pieces, the request that runs already gets a token in every step."""
    engine = make_engine(max_num_seqs=2, max_num_batched_tokens=4)
    add(engine, "old", max_tokens=20)
    step(engine)
    add(engine, "long", PROMPT, max_tokens=1)
    assert [sorted(step(engine)) for _ in range(5)] == [["old"]] * 4 + [["long", "old"]]


def test_first_come_first_served_up_to_max_num_seqs() -> None:
    """The third request starts when one of the first two has ended, whatever its ``priority``."""
    engine = make_engine(max_num_seqs=2)
    for request_id, max_tokens, priority in (("a", 2, 0), ("b", 4, 3), ("c", 2, -5)):
        add(engine, request_id, max_tokens=max_tokens, priority=priority)
    assert [sorted(step(engine)) for _ in range(4)] == [["a", "b"], ["a", "b"], ["b", "c"], ["b", "c"]]


def test_by_priority_the_lowest_number_is_served_first() -> None:
    """Of equals the earlier; who came first to the core does not matter, and nobody who runs is driven out."""
    engine = make_engine(max_num_seqs=1, scheduling_policy="priority")
    add(engine, "running", max_tokens=2, priority=9)
    step(engine)
    for request_id, priority in (("last", 1), ("b", 0), ("first", -1), ("a", 0)):
        add(engine, request_id, max_tokens=1, priority=priority)
    assert [list(step(engine)) for _ in range(5)] == [["running"], ["first"], ["a"], ["b"], ["last"]]


def test_by_priority_the_least_important_gives_way() -> None:
    """Though it came first and runs longest, it is preempted, and nobody loses a token."""
    engine = make_engine(num_blocks=9, scheduling_policy="priority")
    prompts = {"a": PROMPT, "b": list(range(50, 63))}
    add(engine, "a", prompts["a"], max_tokens=15, priority=1)
    step(engine)
    add(engine, "b", prompts["b"], max_tokens=15, priority=0)
    received = run_to_end(engine)
    preempted = {
        request_id: [event.type for output in outputs for event in output.events or ()].count(EventType.PREEMPTED)
        for request_id, outputs in received.items()
    }
    assert preempted == {"a": 1, "b": 0}
    assert tokens_of(received["b"]) == expected_tokens(prompts["b"], 15)
    assert tokens_of(received["a"]) == expected_tokens(prompts["a"], 15)[1:]


def test_a_prompt_is_admitted_only_when_all_of_it_fits() -> None:
    """The second prompt waits for blocks, though its first piece would fit; what is behind it waits too."""
    engine = make_engine(num_blocks=9, max_num_batched_tokens=8)
    add(engine, "a", range(20), max_tokens=2)
    add(engine, "b", range(50, 70), max_tokens=1)
    add(engine, "c", [1], max_tokens=1)
    step(engine)
    assert ids_of_running(engine) == ["a"]
    assert set(answers(engine)) == {"a", "b", "c"}
    assert engine.scheduler.num_preemptions == 0


def test_the_last_to_run_gives_way_and_starts_over_with_its_tokens() -> None:
    """Two requests outgrow a pool that holds either: the younger is preempted, and both get their own tokens."""
    engine = make_engine(num_blocks=9)
    prompts = {"a": PROMPT, "b": list(range(50, 63))}
    for request_id, prompt in prompts.items():
        add(engine, request_id, prompt, max_tokens=15)
    received = run_to_end(engine)
    assert {request_id: tokens_of(outputs) for request_id, outputs in received.items()} == {
        request_id: expected_tokens(prompt, 15) for request_id, prompt in prompts.items()
    }
    assert engine.scheduler.num_preemptions > 0
    events = {
        request_id: [event.type for output in outputs for event in output.events or ()]
        for request_id, outputs in received.items()
    }
    assert events["a"] == [EventType.QUEUED, EventType.SCHEDULED]
    assert events["b"] == [EventType.QUEUED, EventType.SCHEDULED, EventType.PREEMPTED, EventType.SCHEDULED]


def test_nobody_is_admitted_in_a_step_that_preempts() -> None:
    """The blocks that were just found to be too few are not given to a newcomer."""
    engine = make_engine(num_blocks=7)
    add(engine, "a", range(12), max_tokens=9)
    add(engine, "b", range(50, 62), max_tokens=9)
    step(engine)
    add(engine, "c", [1], max_tokens=9)
    step(engine)
    assert ids_of_running(engine) == ["a"]
    assert ids_of_waiting(engine) == ["b", "c"]
    assert set(answers(engine)) == {"a", "b", "c"}


def test_a_preempted_request_finds_its_own_blocks_again() -> None:
    """Its second prefill is short, counted as preempted, and not reported as the request's cached tokens."""
    engine = make_engine(num_blocks=9)
    add(engine, "a", PROMPT, max_tokens=8)
    add(engine, "b", range(50, 63), max_tokens=8)
    hits = 0
    while engine.has_requests():
        outputs, _ = engine.step()
        engine.check_integrity()
        for message in outputs.values():
            assert message.scheduler_stats is not None
            hits += message.scheduler_stats.prefix_cache_stats.preempted_hits
        for output in flatten([outputs]).values():
            assert output.prefill_stats is None or output.prefill_stats.num_cached_tokens == 0
    assert hits > 0


def test_what_a_request_finds_of_itself_is_not_reported_as_cached() -> None:
    """Preempted in mid-prefill it finds its first piece again: its cached tokens are still those of the start."""
    engine = make_engine(num_blocks=9, max_num_seqs=2, max_num_batched_tokens=4)
    add(engine, "a", PROMPT[:11], max_tokens=5)
    add(engine, "b", range(20), max_tokens=1)
    received = run_to_end(engine)
    [output] = received["b"]
    assert [event.type for event in output.events or ()].count(EventType.PREEMPTED) == 1
    assert output.prefill_stats is not None
    assert (output.prefill_stats.num_computed_tokens, output.prefill_stats.num_cached_tokens) == (20, 0)
    assert output.new_token_ids == expected_tokens(range(20), 1)


@pytest.mark.parametrize("length", [11, 12, 13], ids=["k blocks - 1", "k blocks", "k blocks + 1"])
@pytest.mark.parametrize("caching", [True, False])
def test_a_prefix_cache_hit_changes_no_token(length: int, caching: bool) -> None:
    """The same prompt four times gives the same tokens, with its cached tokens reported and one at least computed."""
    engine = make_engine(enable_prefix_caching=caching)
    for i in range(4):
        add(engine, f"r{i}", PROMPT[:length], max_tokens=4)
        outputs = run_to_end(engine)[f"r{i}"]
        assert tokens_of(outputs) == expected_tokens(PROMPT[:length], 4)
        stats = outputs[0].prefill_stats
        assert stats is not None
        assert stats.num_cached_tokens == ((length - 1) // 4 * 4 if caching and i else 0)
        assert stats.num_computed_tokens == length - stats.num_cached_tokens


def test_output_is_cached_too() -> None:
    """A prompt that continues an earlier answer finds the blocks of that answer."""
    engine = make_engine()
    add(engine, "a", PROMPT, max_tokens=8)
    answer = tokens_of(run_to_end(engine)["a"])
    add(engine, "b", [*PROMPT, *answer], max_tokens=1)
    [output] = run_to_end(engine)["b"]
    assert output.prefill_stats is not None
    assert output.prefill_stats.num_cached_tokens == 20
    assert output.new_token_ids == expected_tokens([*PROMPT, *answer], 1)


def test_a_lone_request_that_outgrows_the_pool_ends_as_length() -> None:
    """8 usable blocks of 4 hold 32 tokens: the 33rd is the last, whatever max_tokens says; the next is served."""
    engine = make_engine(num_blocks=9, max_model_len=64)
    add(engine, "a", PROMPT, max_tokens=None)
    outputs = run_to_end(engine)["a"]
    assert tokens_of(outputs) == expected_tokens(PROMPT, 20)
    assert outputs[-1].finish_reason is FinishReason.LENGTH
    add(engine, "b", range(32), max_tokens=9)
    assert answers(engine) == {"b": expected_tokens(range(32), 1)}


def test_an_aborted_request_leaves_no_trace() -> None:
    """Waiting, running and preempted ones: no output, no block, and the gauges go back in one last message."""
    engine = make_engine(num_blocks=7, max_num_seqs=2)
    add(engine, "a", range(12), max_tokens=9)
    add(engine, "b", range(50, 62), max_tokens=9)
    add(engine, "c", max_tokens=9)
    step(engine)
    step(engine)
    assert ids_of_waiting(engine) == ["b", "c"]
    engine.abort_requests(["a", "b", "c", "unknown", "a"])
    engine.scheduler.check_integrity()
    assert engine.scheduler.kv_cache.is_unused
    outputs, ran = engine.step()
    stats = outputs[0].scheduler_stats
    assert stats is not None
    assert (stats.num_running_reqs, stats.num_waiting_reqs, stats.kv_cache_usage) == (0, 0, 0.0)
    assert (outputs[0].outputs, ran, engine.has_requests()) == ([], False, False)


def test_the_id_of_an_aborted_request_is_free_at_once() -> None:
    """The same id again, before the next step, is a new request with its own answer."""
    engine = make_engine()
    add(engine, "a", PROMPT, max_tokens=5)
    step(engine)
    engine.abort_requests(["a"])
    add(engine, "a", [7, 8], max_tokens=3)
    assert answers(engine) == {"a": expected_tokens([7, 8], 3)}


def test_a_live_id_is_refused_and_its_owner_goes_on() -> None:
    """The second request with the id is an error; the first one's tokens are not touched."""
    engine = make_engine()
    add(engine, "a", PROMPT, max_tokens=3)
    with pytest.raises(RequestError, match="request_id must not be that of a live request, got 'a'"):
        add(engine, "a", [1])
    assert answers(engine) == {"a": expected_tokens(PROMPT, 3)}


def test_a_reset_prefix_cache_forgets_and_can_preempt_for_it() -> None:
    """Refused while a request runs, unless running ones are to start over; they end with the same tokens."""
    engine = make_engine()
    for request_id in ("a", "b"):
        add(engine, request_id, [ord(request_id), *PROMPT], max_tokens=6)
    step(engine)
    assert not engine.scheduler.reset_prefix_cache(reset_running_requests=False)
    assert engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert ids_of_waiting(engine) == ["a", "b"]
    assert answers(engine) == {i: expected_tokens([ord(i), *PROMPT], 6)[1:] for i in ("a", "b")}


def test_integrity_counts_requests_too() -> None:
    """A request that is neither waiting nor running is found."""
    engine = make_engine()
    add(engine)
    engine.scheduler.waiting.pop_last()
    with pytest.raises(RuntimeError, match="1 requests, Scheduler\\(0 running, 0 waiting"):
        engine.scheduler.check_integrity()
    give_up(engine)
