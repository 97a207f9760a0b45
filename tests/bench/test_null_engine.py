"""The null engine, step by step."""

import pytest

from bench.null_engine import NullEngine, NullEngineConfig
from core.wire.messages import EngineCoreOutput, EventType, FinishReason
from tests.core.front_end import make_request


def engine_with(*request_ids: str, config: NullEngineConfig | None = None, max_tokens: int | None = 3) -> NullEngine:
    engine = NullEngine(config)
    for index, request_id in enumerate(request_ids):
        request = make_request(request_id, client_index=index % 2, max_tokens=max_tokens)
        engine.add_request(engine.preprocess_add_request(request))
    return engine


def run(engine: NullEngine) -> list[EngineCoreOutput]:
    """Step until nothing is left."""
    outputs = []
    while engine.has_requests():
        messages, _ = engine.step()
        outputs += [output for message in messages.values() for output in message.outputs]
    return outputs


def test_cadence() -> None:
    """One message per step and client, statistics with one of them, and alone after the last finish."""
    engine = engine_with("a", "b", "c", max_tokens=1)
    messages, has_run = engine.step()
    assert has_run
    assert {client: [o.request_id for o in m.outputs] for client, m in messages.items()} == {0: ["a", "c"], 1: ["b"]}
    assert [message.scheduler_stats is None for message in messages.values()] == [False, True]
    messages, has_run = engine.step()
    assert not has_run
    assert (messages[0].outputs, messages[0].scheduler_stats is None) == ([], False)
    assert not engine.has_requests()


def test_first_and_last_output() -> None:
    """Events and prefill counts come first, the finish reason last."""
    first, _, last = run(engine_with("a"))
    assert [event.type for event in first.events or ()] == [EventType.QUEUED, EventType.SCHEDULED]
    assert first.prefill_stats is not None
    assert (first.finish_reason, last.finish_reason) == (None, FinishReason.LENGTH)


def test_tokens_depend_on_the_position_alone() -> None:
    """The given ids are said in turn, by position: a request resubmitted with its tokens goes on the same."""
    config = NullEngineConfig(token_ids=[10, 20, 30])
    tokens = [output.new_token_ids[0] for output in run(engine_with("a", config=config, max_tokens=5))]
    assert tokens == [30, 10, 20, 30, 10]
    resumed = make_request("b", max_tokens=3)
    resumed.prompt_token_ids = [1, 2, 3, 4, 5, *tokens[:2]]
    engine = NullEngine(config)
    engine.add_request(engine.preprocess_add_request(resumed))
    assert [output.new_token_ids[0] for output in run(engine)] == tokens[2:]


@pytest.mark.parametrize(("max_tokens", "num_tokens"), [(None, 7), (100, 7), (2, 2)])
def test_length(max_tokens: int | None, num_tokens: int) -> None:
    """A request ends at max_tokens or where the context does."""
    outputs = run(engine_with("a", config=NullEngineConfig(max_model_len=12), max_tokens=max_tokens))
    assert len(outputs) == num_tokens
    assert outputs[-1].finish_reason is FinishReason.LENGTH


def test_pace() -> None:
    """With a rate, a step before its time gives nothing; all requests share the same steps."""
    engine = engine_with("a", "b", config=NullEngineConfig(tokens_per_second=0.001))
    assert engine.step()[1]
    assert engine.step() == ({}, False)


def test_aborts() -> None:
    """Aborted requests have no further output, and one statistics message."""
    engine = engine_with("a", "b")
    engine.abort_requests(["a", "unknown"])
    messages, _ = engine.step()
    assert list(messages) == [1]
    engine.abort_requests(["b", "b"])
    assert engine.has_requests()
    assert run(engine) == []


def test_an_abort_of_before_the_step_does_not_hit_the_next_request_of_that_id() -> None:
    """It came through the input queue too, before the new request; its copy in the other queue is dropped."""
    engine = engine_with("a")
    engine.aborts_queue.put(["a"])
    engine.abort_requests(["a"])
    engine.add_request(engine.preprocess_add_request(make_request("a")))
    assert len(run(engine)) == 3
    assert engine.aborts_queue.empty()


def test_abort_all() -> None:
    """Every request ends as ABORT, per client."""
    messages = engine_with("a", "b", "c").abort_all()
    assert {client: message.finished_requests for client, message in messages.items()} == {0: ["a", "c"], 1: ["b"]}
    assert all(o.finish_reason is FinishReason.ABORT for message in messages.values() for o in message.outputs)


@pytest.mark.parametrize("num_prompt_tokens", [0, 10])
def test_prompt_length(num_prompt_tokens: int) -> None:
    """An empty prompt and one without room for a token are refused with the bound."""
    request = make_request("a")
    request.prompt_token_ids = [1] * num_prompt_tokens
    with pytest.raises(ValueError, match=f"must hold 1 to 9 tokens, got {num_prompt_tokens}"):
        NullEngine(NullEngineConfig(max_model_len=10)).preprocess_add_request(request)


def test_no_tokens_to_say() -> None:
    """An engine with nothing to say is refused."""
    with pytest.raises(ValueError, match="must not be empty"):
        NullEngineConfig(token_ids=[])
