"""Utility calls: those on the list, with the right arguments, and no other."""

from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.utilities import Utilities
from core.utility_table import UtilityError
from core.wire.messages import EngineCoreOutput, FinishReason
from core.wire.version import ResultByVersion
from tests.core.builders import add, expected_tokens, flatten, make_engine, run_to_end, step, tokens_of

PROMPT = list(range(100, 113))


@pytest.mark.parametrize(
    ("method", "args", "result"),
    [
        ("get_supported_tasks", [], ["generate"]),
        ("reset_mm_cache", [], None),
        ("reset_encoder_cache", [], None),
        ("reset_prefix_cache", [False, False], True),
        ("reset_prefix_cache", [], True),
        ("execute_dummy_batch", [], None),
        ("is_sleeping", [], False),
        ("is_scheduler_paused", [], False),
        ("list_loras", [], []),
        ("resume_scheduler", [], None),
        ("wake_up", [None], ResultByVersion(in_0_25=None, in_0_33=True)),
        ("wake_up", [], ResultByVersion(in_0_25=None, in_0_33=True)),
        ("profile", [True, "a"], None),
        ("profile", [True, None, 2, 3, {}], None),
        ("collective_rpc", ["check_health", 5.0, [], {}], [None]),
        ("collective_rpc", ["check_health"], [None]),
        (
            "get_kv_cache_group_metadata",
            [],
            [{"group_idx": 0, "kind": "full_attention", "block_size": 4, "sliding_window": None}],
        ),
    ],
)
def test_what_front_ends_call_is_answered(method: str, args: list[Any], result: Any) -> None:
    """With the arguments and results of the genuine core."""
    assert make_engine().call_utility(method, args) == result


@pytest.mark.parametrize("method", ["no_such_method", "step", "call", "_scheduler", "__init__", "settle_pauses"])
def test_nothing_else_can_be_called(method: str) -> None:
    """Neither unknown names nor those of the engine's own methods; the error lists what can be."""
    with pytest.raises(UtilityError, match=rf"^Call to {method} method failed: unknown method.*get_supported_tasks"):
        make_engine().call_utility(method, [])


@pytest.mark.parametrize(
    ("method", "args", "words"),
    [
        ("is_sleeping", [1], "too many positional arguments"),
        ("add_lora", [], "missing a required argument: 'lora_request'"),
        ("add_lora", [["a", "b", "c"]], r"lora_request must be .*LoRARequest, got \['a', 'b', 'c'\]"),
        ("add_lora", [["a", 1, "/a"]], r"LoRA is not enabled \(--enable-lora\): cannot add 'a'"),
        ("remove_lora", [1], r"LoRA is not enabled \(--enable-lora\): there is no adapter 1 to remove"),
        ("pin_lora", [1], r"LoRA is not enabled \(--enable-lora\): there is no adapter 1 to pin"),
        ("profile", [False], "no profile was started"),
        ("profile", [True, None, None, None, {"with_stack": True}], "profiler_kwargs must be empty, got"),
        ("collective_rpc", ["sleep", None, [], {}], "method must be one of check_health, .*, got 'sleep'"),
        ("collective_rpc", ["check_health", None, [1], {}], "check_health takes no arguments, got 1"),
        ("reset_prefix_cache", ["yes" * 9999], "reset_running_requests must be bool, got 'yes.{90,100}yes'$"),
        ("reset_prefix_cache", ["yes"], "reset_running_requests must be bool, got 'yes'"),
        ("pause_generation", ["now", True], r"mode must be Literal\['abort', 'wait', 'keep'\], got 'now'"),
        ("pause_scheduler", ["now", True], r"mode must be Literal\['abort', 'wait', 'keep'\], got 'now'"),
    ],
)
def test_wrong_arguments_are_refused(method: str, args: list[Any], words: str) -> None:
    """The error names the argument, the value and what it must be; the engine is not paused by it."""
    engine = make_engine()
    with pytest.raises(UtilityError, match=f"^Call to {method} method failed: .*{words}"):
        engine.call_utility(method, args)
    assert not engine.scheduler.is_paused


CALLABLE = [*Utilities.METHODS, "no_such_method"]
TELLING = st.sampled_from(["abort", "wait", "keep", "weights", "kv_cache", "scheduling", "check_health"])
PLAIN = (
    TELLING | st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([2**64, -1.5, float("nan"), "", b"x"])
)
ARGS = PLAIN | st.lists(PLAIN, max_size=3) | st.just({}) | st.just({"a": [None, {}]}) | st.just(["lora", 1, "/path"])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(CALLABLE), st.lists(ARGS, max_size=5)), max_size=8))
def test_no_call_harms_the_engine(calls: list[tuple[str, list[Any]]]) -> None:
    """Whatever is called with whatever arguments, between the steps of requests, fails with a message or is done.

    Once the engine is awake again every request has all its tokens or was aborted, and nothing has leaked.
    """
    engine = make_engine(max_num_seqs=2)
    received: dict[str, list[EngineCoreOutput]] = {}
    answers: list[Any] = []
    for index, (method, args) in enumerate(calls):
        add(engine, str(index), PROMPT, max_tokens=3)
        if engine.has_requests():
            collect(received, step(engine))
        try:
            answers.append(engine.call_utility(method, args))
        except UtilityError as error:
            answers.append(error)
    engine.call_utility("wake_up", [None])
    for request_id, outputs in run_to_end(engine).items():
        received.setdefault(request_id, []).extend(outputs)
    assert all(answer.done() for answer in answers if isinstance(answer, Future))
    assert all("method failed: " in str(answer) for answer in answers if isinstance(answer, UtilityError))
    assert sorted(received) == sorted(str(index) for index in range(len(calls)))
    for outputs in received.values():
        if outputs[-1].finish_reason is not FinishReason.ABORT:
            assert tokens_of(outputs) == expected_tokens(PROMPT, 3)
    engine.check_integrity()
    assert engine.scheduler.kv_cache.is_unused


def collect(received: dict[str, list[EngineCoreOutput]], outputs: dict[str, EngineCoreOutput]) -> None:
    for request_id, output in outputs.items():
        received.setdefault(request_id, []).append(output)


def test_pause_abort_ends_everything_and_is_answered_after_the_outputs() -> None:
    """The requests' final ABORT outputs come with the next step, then the answer; what is added waits for resume."""
    engine = make_engine()
    add(engine, "a", PROMPT, max_tokens=9)
    step(engine)
    answer = engine.call_utility("pause_scheduler", ["abort", True])
    assert isinstance(answer, Future)
    assert not answer.done()
    outputs, _ = engine.step()
    assert outputs[0].finished_requests == ["a"]
    assert flatten([outputs])["a"].finish_reason is FinishReason.ABORT
    assert not answer.done()
    assert engine.step() == ({}, False)
    assert answer.result(timeout=0) is None
    add(engine, "b", PROMPT, max_tokens=2)
    assert not engine.has_requests()
    engine.call_utility("resume_scheduler", [])
    [first, *_] = outputs = run_to_end(engine)["b"]
    assert tokens_of(outputs) == expected_tokens(PROMPT, 2)
    assert first.prefill_stats is not None
    assert first.prefill_stats.num_cached_tokens == 0


def test_pause_wait_lets_running_requests_end() -> None:
    """Those that run end normally, those that wait stay, and the answer comes when nothing runs."""
    engine = make_engine(max_num_seqs=1)
    add(engine, "a", PROMPT, max_tokens=3)
    add(engine, "b", PROMPT, max_tokens=3)
    step(engine)
    answer = engine.call_utility("pause_scheduler", ["wait", False])
    assert engine.call_utility("is_scheduler_paused", [])
    assert tokens_of(run_to_end(engine)["a"]) == expected_tokens(PROMPT, 3)[1:]
    assert answer.result(timeout=0) is None
    assert engine.num_unfinished_requests() == 1
    engine.call_utility("resume_scheduler", [])
    assert tokens_of(run_to_end(engine)["b"]) == expected_tokens(PROMPT, 3)


@pytest.mark.parametrize("clear_cache", [True, False])
def test_pause_keep_freezes_running_requests(clear_cache: bool) -> None:
    """Answered in the next step, in which nothing runs; after resume the requests go on with the same tokens."""
    engine = make_engine()
    add(engine, "a", PROMPT, max_tokens=5)
    step(engine)
    answer = engine.call_utility("pause_scheduler", ["keep", clear_cache])
    assert engine.step() == ({}, False)
    assert answer.result(timeout=0) is None
    assert not engine.has_requests()
    assert engine.num_unfinished_requests() == 1
    assert engine.scheduler.kv_cache.is_unused == clear_cache
    engine.call_utility("resume_scheduler", [])
    assert tokens_of(run_to_end(engine)["a"]) == expected_tokens(PROMPT, 5)[1:]


def test_frozen_requests_can_be_aborted() -> None:
    """One by its id, the rest by abort_all with their final outputs: a pause leaves nobody without an end."""
    engine = make_engine()
    add(engine, "a", max_tokens=5)
    add(engine, "b", max_tokens=5)
    step(engine)
    engine.call_utility("pause_scheduler", ["keep", False])
    engine.abort_requests(["a"])
    assert run_to_end(engine) == {}
    assert [output.request_id for output in engine.abort_all()[0].outputs] == ["b"]
    assert engine.scheduler.kv_cache.is_unused


def test_resume_answers_a_pause_that_was_still_waiting() -> None:
    """It fails with a reason instead of waiting for an idle moment that may never come."""
    engine = make_engine()
    add(engine, max_tokens=5)
    step(engine)
    answer = engine.call_utility("pause_scheduler", ["wait", False])
    engine.call_utility("resume_scheduler", [])
    with pytest.raises(UtilityError, match="pause_scheduler method failed: resumed before the engine was idle"):
        answer.result(timeout=0)
    assert tokens_of(run_to_end(engine)["r"]) == expected_tokens([1, 2, 3], 5)[1:]
