"""Sleeping engines: the memory goes and comes back, and no request is lost or answered differently."""

from concurrent.futures import Future
from typing import Any

import pytest

from core.engine import EngineCore
from core.executor.fake import FakeExecutor
from core.utility_table import UtilityError
from core.wire.messages import FinishReason
from core.wire.version import ResultByVersion
from tests.core.builders import add, expected_tokens, make_engine, run_to_end, step, tokens_of

PROMPT = list(range(100, 113))
AWAKE = {"weights": 1000, "kv_cache": 65 * 4 * 8}
ASLEEP = {"weights": 0, "kv_cache": 0}


def memory_of(engine: EngineCore) -> Any:
    (memory,) = engine.call_utility("collective_rpc", ["get_memory_usage", None, [], {}])
    return memory


def put_to_sleep(engine: EngineCore, level: int = 1, mode: str = "abort") -> None:
    answer = engine.call_utility("sleep", [level, mode])
    assert isinstance(answer, Future)
    assert not answer.done()
    run_to_end(engine)
    assert answer.result(timeout=0) is None


@pytest.mark.parametrize("level", [1, 2])
def test_memory_goes_and_comes_back(level: int) -> None:
    """At level 1 and 2 weights and KV cache are dropped; awake, a prompt gets the tokens it had before."""
    engine = make_engine()
    add(engine, "before", PROMPT, max_tokens=4)
    before = tokens_of(run_to_end(engine)["before"])
    assert memory_of(engine) == AWAKE
    put_to_sleep(engine, level)
    assert memory_of(engine) == ASLEEP
    assert engine.call_utility("is_sleeping", [])
    assert engine.call_utility("wake_up", [None]) == ResultByVersion(in_0_25=None, in_0_33=True)
    assert memory_of(engine) == AWAKE
    assert not engine.call_utility("is_sleeping", [])
    add(engine, "after", PROMPT, max_tokens=4)
    [first, *_] = outputs = run_to_end(engine)["after"]
    assert tokens_of(outputs) == before == expected_tokens(PROMPT, 4)
    assert first.prefill_stats is not None
    assert first.prefill_stats.num_cached_tokens == 0


def test_level_0_is_a_pause() -> None:
    """Memory and cache stay; "scheduling" alone wakes it."""
    engine = make_engine()
    add(engine, "a", PROMPT, max_tokens=2)
    run_to_end(engine)
    put_to_sleep(engine, 0)
    assert memory_of(engine) == AWAKE
    assert engine.call_utility("is_sleeping", [])
    engine.call_utility("wake_up", [["scheduling"]])
    add(engine, "b", PROMPT, max_tokens=2)
    [first, *_] = run_to_end(engine)["b"]
    assert first.prefill_stats is not None
    assert first.prefill_stats.num_cached_tokens == 12


def test_waking_in_parts() -> None:
    """Scheduling resumes only when every part is awake, whatever else is asked for, in whatever order."""
    engine = make_engine()
    put_to_sleep(engine)
    add(engine, "a", PROMPT, max_tokens=2)
    for tags in (["scheduling"], [], ["weights"], ["weights", "scheduling"]):
        engine.call_utility("wake_up", [tags])
        assert engine.call_utility("is_sleeping", [])
        assert not engine.has_requests()
    assert memory_of(engine) == {"weights": 1000, "kv_cache": 0}
    engine.call_utility("wake_up", [["kv_cache"]])
    assert tokens_of(run_to_end(engine)["a"]) == expected_tokens(PROMPT, 2)


def test_a_request_that_comes_meanwhile_waits() -> None:
    """It is served after the wake-up; one that is aborted meanwhile is gone."""
    engine = make_engine()
    put_to_sleep(engine)
    add(engine, "a", PROMPT, max_tokens=3)
    add(engine, "b", PROMPT, max_tokens=3)
    engine.abort_requests(["b"])
    run_to_end(engine)
    assert engine.num_unfinished_requests() == 1
    engine.call_utility("wake_up", [])
    received = run_to_end(engine)
    assert {request_id: tokens_of(outputs) for request_id, outputs in received.items()} == {
        "a": expected_tokens(PROMPT, 3)
    }


@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
def test_what_becomes_of_running_requests(mode: str) -> None:
    """abort: a final ABORT output; wait: all their tokens before it sleeps; keep: the rest of them afterwards."""
    engine = make_engine()
    add(engine, "a", PROMPT, max_tokens=4)
    first = step(engine)["a"].new_token_ids
    answer = engine.call_utility("sleep", [2, mode])
    before = run_to_end(engine).get("a", [])
    assert answer.result(timeout=0) is None
    assert memory_of(engine) == ASLEEP
    engine.call_utility("wake_up", [None])
    after = run_to_end(engine).get("a", [])
    if mode == "abort":
        assert [output.finish_reason for output in before + after] == [FinishReason.ABORT]
    else:
        assert first + tokens_of(before + after) == expected_tokens(PROMPT, 4)
        assert bool(after) == (mode == "keep")


def test_everything_ends_asleep() -> None:
    """At a shutdown those that wait for the wake-up get their final output, and no block is held."""
    engine = make_engine()
    add(engine, "running", PROMPT, max_tokens=9)
    step(engine)
    put_to_sleep(engine, 1, "keep")
    add(engine, "waiting", PROMPT)
    assert not engine.has_requests()
    outputs = engine.abort_all()[0].outputs
    assert {output.request_id: output.finish_reason for output in outputs} == dict.fromkeys(
        ["running", "waiting"], FinishReason.ABORT
    )
    engine.check_integrity()


def test_sleep_may_be_called_off() -> None:
    """A wake-up while it waits for requests to end: they go on, and the sleep fails with the reason."""
    engine = make_engine()
    add(engine, "a", PROMPT, max_tokens=4)
    step(engine)
    answer = engine.call_utility("sleep", [1, "wait"])
    engine.call_utility("wake_up", [None])
    with pytest.raises(UtilityError, match=r"^Call to sleep method failed: resumed before the engine was idle"):
        answer.result(timeout=0)
    assert memory_of(engine) == AWAKE
    assert tokens_of(run_to_end(engine)["a"]) == expected_tokens(PROMPT, 4)[1:]


def test_sleeping_twice() -> None:
    """Deeper or again: nothing more happens, and one wake-up is enough."""
    engine = make_engine()
    for level in (1, 2, 1, 0):
        put_to_sleep(engine, level)
    engine.call_utility("wake_up", [None])
    assert not engine.call_utility("is_sleeping", [])
    assert memory_of(engine) == AWAKE


@pytest.mark.parametrize(
    ("method", "args", "words"),
    [
        ("sleep", [3, "abort"], r"level must be in \[0, 2\], got 3"),
        ("sleep", [-1, "abort"], r"level must be in \[0, 2\], got -1"),
        ("sleep", [1, "now"], "mode must be .*'keep'.*, got 'now'"),
        ("wake_up", [["brain"]], r"tags must be .*'scheduling'.*, got \['brain'\]"),
    ],
)
def test_bounds(method: str, args: list[Any], words: str) -> None:
    """The error names the argument and what it must be, and nothing falls asleep."""
    engine = make_engine()
    with pytest.raises(UtilityError, match=words):
        engine.call_utility(method, args)
    assert not engine.call_utility("is_sleeping", [])


@pytest.mark.parametrize(("method", "args"), [("resume_scheduler", []), ("execute_dummy_batch", [])])
def test_nothing_runs_asleep(method: str, args: list[Any]) -> None:
    """What would run a step fails, and says what to do."""
    engine = make_engine()
    put_to_sleep(engine)
    with pytest.raises(UtilityError, match=r"the engine is asleep \(kv_cache, weights\): wake it up"):
        engine.call_utility(method, args)
    assert not engine.has_requests()


def test_a_wake_up_that_fails_can_be_repeated() -> None:
    """The files are gone: the engine sleeps on, and wakes once they are there again."""

    class Forgetful(FakeExecutor):
        has_files = False

        def wake_up(self, parts: Any) -> None:
            if not self.has_files:
                raise FileNotFoundError("model.gguf")
            super().wake_up(parts)

    executor = Forgetful()
    engine = make_engine(executor=executor)
    put_to_sleep(engine)
    add(engine, "a", PROMPT, max_tokens=2)
    with pytest.raises(UtilityError, match=r"Call to wake_up method failed: model\.gguf"):
        engine.call_utility("wake_up", [None])
    assert engine.call_utility("is_sleeping", [])
    executor.has_files = True
    engine.call_utility("wake_up", [None])
    assert tokens_of(run_to_end(engine)["a"]) == expected_tokens(PROMPT, 2)
