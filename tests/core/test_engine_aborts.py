"""EngineCore: requests that are not wanted any more, one by one and all at once."""

from core.engine import EngineCore
from core.executor.fake import FakeExecutor
from tests.core.builders import (
    add,
    add_for_client,
    expected_tokens,
    make_engine,
    make_message,
    run_to_end,
    step,
    tokens_of,
)
from tests.core.wire.recorded import recorded_outputs


def test_an_abort_during_the_forward_pass_takes_effect_in_the_same_step() -> None:
    """The token that was being computed is not sent, the neighbour's is."""
    executor = FakeExecutor(on_step=lambda number: engine.aborts_queue.put(["a"]) if number == 2 else None)
    engine = make_engine(executor=executor)
    add(engine, "a", max_tokens=5)
    add(engine, "b", max_tokens=5)
    assert set(step(engine)) == {"a", "b"}
    assert set(step(engine)) == {"b"}
    step(engine)
    assert executor.request_ids == {"b"}


def test_an_abort_of_before_the_step_does_not_hit_the_next_request_of_that_id() -> None:
    """The abort came through the input queue too, before the new request: its copy must not end that one."""
    engine = make_engine()
    add(engine, "a", max_tokens=3)
    engine.aborts_queue.put(["a"])
    engine.abort_requests(["a"])
    add(engine, "a", [1, 2], max_tokens=3)
    assert tokens_of(run_to_end(engine)["a"]) == expected_tokens([1, 2], 3)


def test_abort_immediately_gives_no_output() -> None:
    """The request is gone before its first step."""
    engine = make_engine()
    engine.add_request(engine.preprocess_add_request(make_message(abort_immediately=True)))
    assert engine.num_unfinished_requests() == 0
    assert run_to_end(engine) == {}


def test_abort_all_ends_every_request_with_a_final_output() -> None:
    """Running and waiting ones, per client, exactly as the genuine core does at SIGTERM; then nothing is left."""
    engine = make_engine(max_num_seqs=1)
    add_for_client(engine, "term#1", 0, max_tokens=9)
    engine.step()
    add_for_client(engine, "term#2", 1, max_tokens=9)
    outputs = engine.abort_all()
    for client in (0, 1):
        genuine = recorded_outputs(f"core_out_abort_by_sigterm_c{client}")
        genuine.timestamp = 0.0
        assert outputs[client] == genuine
    assert engine.num_unfinished_requests() == 0
    assert run_to_end(engine) == {}


def test_the_requests_of_one_client_end() -> None:
    """Those of another go on."""
    engine = make_engine()
    for request_id, client_index in (("a", 0), ("b", 1), ("c", 1)):
        add_for_client(engine, request_id, client_index, max_tokens=2)
    engine.step()
    assert {output.request_id for output in engine.abort_all(1)[1].outputs} == {"b", "c"}
    assert [*run_to_end(engine)] == ["a"]


def test_reset_forgets_whom_the_engine_has_served() -> None:
    """Paused by the one front end, it serves the next one, which finds nothing cached."""
    engine = make_engine()
    add_for_client(engine, "a", 0, max_tokens=9)
    engine.step()
    engine.call_utility("pause_scheduler", ["keep", False])
    engine.abort_all()
    engine.reset()
    assert not engine.has_requests()
    assert not engine.call_utility("is_sleeping", [])
    add_for_client(engine, "b", 0, max_tokens=1)
    stats = step(engine)["b"].prefill_stats
    assert stats is not None
    assert stats.num_cached_tokens == 0


def engine_with(num_requests: int) -> EngineCore:
    engine = make_engine()
    for index in range(num_requests):
        add(engine, str(index))
    return engine
