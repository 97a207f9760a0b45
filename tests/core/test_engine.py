"""EngineCore: the cadence of its outputs is the genuine one, and one request's misfortune stays its own."""

import logging

import pytest

from core.config import CacheConfig, SchedulerConfig
from core.engine import EngineCore
from core.executor.fake import FAKE_MODEL, FakeExecutor
from core.request_limits import RequestError
from core.wire.codec import Decoder, Encoder
from core.wire.messages import EngineCoreOutput, EngineCoreOutputs, EventType, FinishReason
from core.wire.sampling_params import SamplingParams
from tests.core.builders import (
    add,
    add_for_client,
    expected_tokens,
    give_up,
    make_engine,
    make_message,
    run_to_end,
    step,
    tokens_of,
)
from tests.core.wire.recorded import recorded_outputs

PROMPT = list(range(100, 113))


def test_a_cached_prompt_reports_what_the_genuine_core_reports() -> None:
    """300 tokens twice, block size 128: prefill and cache statistics and event types equal the recorded ones."""
    engine = make_engine(num_blocks=9, block_size=128, max_num_batched_tokens=512, max_model_len=512)
    prompt = [i % 1000 for i in range(300)]
    for request_id in ("cache1#1", "cache2#1"):
        add(engine, request_id, prompt, max_tokens=1)
        outputs, _ = engine.step()
    genuine = recorded_outputs("core_out_prefix_cached")
    ours, theirs = outputs[0].outputs[0], genuine.outputs[0]
    assert ours.prefill_stats == theirs.prefill_stats
    assert [event.type for event in ours.events or ()] == [event.type for event in theirs.events or ()]
    assert ours.finish_reason == theirs.finish_reason
    assert outputs[0].scheduler_stats == genuine.scheduler_stats


def test_the_last_finish_is_followed_by_one_message_of_statistics() -> None:
    """Token and finish reason in one message, then an empty one, then nothing."""
    engine = make_engine()
    add(engine, max_tokens=1)
    outputs, ran = engine.step()
    assert (outputs[0].outputs[0].finish_reason, ran) == (FinishReason.LENGTH, True)
    outputs, ran = engine.step()
    assert outputs[0] == recorded_stats_only(outputs[0])
    assert not ran
    assert engine.step() == ({}, False)


def recorded_stats_only(like: EngineCoreOutputs) -> EngineCoreOutputs:
    genuine = recorded_outputs("core_out_stats_only")
    genuine.timestamp = like.timestamp
    return genuine


def test_events_and_prefill_statistics_come_with_the_first_output_only() -> None:
    """QUEUED before SCHEDULED, on the core's own clock."""
    engine = make_engine()
    add(engine, max_tokens=2)
    first, second = run_to_end(engine)["r"]
    assert first.events is not None
    assert [event.type for event in first.events] == [EventType.QUEUED, EventType.SCHEDULED]
    assert first.events[0].timestamp <= first.events[1].timestamp
    assert (second.events, second.prefill_stats) == (None, None)


def test_every_client_gets_its_own_message_and_one_of_them_the_statistics() -> None:
    """Outputs go to the socket of their request; statistics go once, to a client that has outputs."""
    engine = make_engine()
    for request_id, client_index in (("a", 2), ("b", 1), ("c", 2)):
        add_for_client(engine, request_id, client_index, max_tokens=2)
    outputs, _ = engine.step()
    assert {client: [output.request_id for output in message.outputs] for client, message in outputs.items()} == {
        2: ["a", "c"],
        1: ["b"],
    }
    assert [message.scheduler_stats is not None for message in outputs.values()] == [True, False]


@pytest.mark.parametrize("async_scheduling", [False, True], ids=["sync", "async"])
def test_the_statistics_follow_what_runs_and_waits(async_scheduling: bool) -> None:
    """In every message, one at a time: all counts, the lookups of the step, and zero after the last abort."""
    engine = make_engine(num_blocks=9, max_num_seqs=2, async_scheduling=async_scheduling)
    for request_id, client_index in (("a", 1), ("b", 2), ("c", 2)):
        add_for_client(engine, request_id, client_index, [ord(request_id), *PROMPT[1:]], max_tokens=3)
    messages = [engine.step()[0]]
    engine.abort_requests(["a", "b", "c"])
    while engine.has_requests():
        messages.append(engine.step()[0])
    found = [
        [(client, message.scheduler_stats) for client, message in step.items() if message.scheduler_stats]
        for step in messages
    ]
    assert [len(stats) for stats in found] == [1] * len(found)
    (first_client, first), (last_client, last) = found[0][0], found[-1][0]
    assert (first_client, first.num_running_reqs, first.num_waiting_reqs, first.kv_cache_usage) == (1, 2, 1, 1.0)
    assert (first.prefix_cache_stats.requests, first.prefix_cache_stats.queries) == (2, 26)
    assert (last_client, last.num_running_reqs, last.num_waiting_reqs, last.kv_cache_usage) == (0, 0, 0, 0.0)
    assert all(stats.num_skipped_waiting_reqs == 0 for [(_, stats)] in found)


def test_trace_headers_and_logprobs_come_back() -> None:
    """What the front end sent with the request, and what the runner gave for it."""
    engine = make_engine()
    message = make_message(params=SamplingParams(logprobs=2, max_tokens=1), trace_headers={"traceparent": "x"})
    engine.add_request(engine.preprocess_add_request(message))
    [output] = run_to_end(engine)["r"]
    assert output.trace_headers == {"traceparent": "x"}
    assert output.new_logprobs is not None
    assert output.new_logprobs.token_ids.shape == (1, 3)


@pytest.mark.parametrize("token_id", [-5, FAKE_MODEL.vocab_size, 2**32])
def test_an_impossible_token_ends_its_request_alone(token_id: int) -> None:
    """The id is dropped, the request ends as ERROR, its neighbour's tokens are exact, and no block stays behind."""
    engine = make_engine(executor=FakeExecutor(scripted_tokens={"bad": [1, token_id]}))
    add(engine, "bad", PROMPT, max_tokens=5)
    add(engine, "good", PROMPT[1:], max_tokens=5)
    received = run_to_end(engine)
    assert tokens_of(received["bad"]) == [1]
    assert received["bad"][-1].finish_reason is FinishReason.ERROR
    assert received["bad"][-1].stop_reason == f"sampled token id {token_id} outside [0, 999]"
    assert tokens_of(received["good"]) == expected_tokens(PROMPT[1:], 5)


def test_nan_logits_end_their_request_alone_and_are_counted() -> None:
    """No token of a NaN row is delivered, and nobody finds the blocks it came from, earlier pieces included."""
    engine = make_engine(max_num_batched_tokens=8, executor=FakeExecutor(nan_request_ids={"bad"}))
    add(engine, "bad", PROMPT, max_tokens=5)
    add(engine, "good", PROMPT[1:], max_tokens=5)
    received = run_to_end(engine)
    [output] = received["bad"]
    assert (output.new_token_ids, output.finish_reason) == ([], FinishReason.ERROR)
    assert output.num_nans_in_logits == FAKE_MODEL.vocab_size
    assert tokens_of(received["good"]) == expected_tokens(PROMPT[1:], 5)
    add(engine, "again", PROMPT, max_tokens=1)
    stats = run_to_end(engine)["again"][0].prefill_stats
    assert stats is not None
    assert stats.num_cached_tokens == 0


@pytest.mark.parametrize("script", [[], [1, 2]], ids=["at once", "later"])
def test_a_request_without_a_possible_token_ends_alone_and_leaves_its_prefix(script: list[int]) -> None:
    """ERROR with the cause, a refusal; the neighbour is exact, the blocks good for the next."""
    engine = make_engine(executor=FakeExecutor(scripted_tokens={"bad": script}, masked_request_ids={"bad"}))
    add(engine, "bad", PROMPT, max_tokens=5)
    add(engine, "good", PROMPT[1:], max_tokens=5)
    received = run_to_end(engine)
    assert tokens_of(received["bad"]) == script
    output = received["bad"][-1]
    assert (output.finish_reason, output.num_nans_in_logits) == (FinishReason.ERROR, 0)
    cause = "no token is possible: allowed_token_ids, bad words, min_tokens and the grammar rule out every one"
    assert output.stop_reason == f"refused: {cause}"
    assert tokens_of(received["good"]) == expected_tokens(PROMPT[1:], 5)
    add(engine, "again", PROMPT, max_tokens=1)
    stats = run_to_end(engine)["again"][0].prefill_stats
    assert stats is not None
    assert stats.num_cached_tokens == 12


@pytest.mark.parametrize("budget", [64, 4], ids=["whole", "chunks"])
def test_prompt_logprobs_come_complete_with_the_first_output_and_once(budget: int) -> None:
    """One row for every prompt token but the first, although the prefix cache holds the prompt."""
    engine = make_engine(max_num_seqs=2, max_num_batched_tokens=budget)
    add(engine, "warm", PROMPT, max_tokens=1)
    run_to_end(engine)
    add(engine, "r", PROMPT, max_tokens=3, prompt_logprobs=2)
    first, *others = run_to_end(engine)["r"]
    assert scored_tokens(first) == PROMPT[1:]
    assert first.prefill_stats is not None
    assert first.prefill_stats.num_cached_tokens == 0
    assert [output.new_prompt_logprobs_tensors for output in others] == [None, None]


def scored_tokens(output: EngineCoreOutput) -> list[int]:
    """Column 0 of the prompt's log-probabilities, which the output has."""
    assert output.new_prompt_logprobs_tensors is not None
    token_ids, logprobs, ranks = (part.array for part in output.new_prompt_logprobs_tensors[:3])
    assert (token_ids.shape, ranks.shape) == (logprobs.shape, logprobs.shape[:1])
    return [int(token_id) for token_id in token_ids[:, 0]]


def test_prompt_logprobs_survive_preemption() -> None:
    """In the middle of the prompt they start over, after the first output they do not come again; no cache is read."""
    engine = make_engine(num_blocks=6, max_num_seqs=2, max_num_batched_tokens=8)
    prompt = list(range(50, 62))
    add(engine, "a", range(7), max_tokens=4)
    add(engine, "b", prompt, max_tokens=8, prompt_logprobs=1)
    received = [step(engine) for _ in range(3)]
    assert all("b" not in outputs for outputs in received)
    assert engine.scheduler.num_preemptions == 1
    step(engine)
    add(engine, "c", range(7), max_tokens=9)
    first, *others = run_to_end(engine)["b"]
    assert engine.scheduler.num_preemptions == 2
    assert scored_tokens(first) == prompt[1:]
    assert all(output.new_prompt_logprobs_tensors is None for output in others)
    assert tokens_of([first, *others]) == expected_tokens(prompt, 8)


def test_a_prompt_of_one_token_has_nothing_to_score() -> None:
    """An empty table, which the wire carries."""
    engine = make_engine()
    add(engine, prompt=[7], max_tokens=1, prompt_logprobs=3)
    outputs, _ = engine.step()
    [output] = Decoder(EngineCoreOutputs).decode(Encoder().encode(outputs[0])).outputs
    assert scored_tokens(output) == []


def test_an_executor_failure_leaves_the_loop() -> None:
    """It concerns every request, so the process must end and say so."""

    def on_step(number: int) -> None:
        if number == 2:
            raise RuntimeError("out of memory")

    engine = make_engine(executor=FakeExecutor(on_step=on_step))
    add(engine, max_tokens=5)
    engine.step()
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.step()


def test_prompts_are_checked_against_the_engines_own_sizes() -> None:
    """8 usable blocks of 4 tokens: 32 prompt tokens are taken, 33 are not, and the next request is served."""
    engine = make_engine(num_blocks=9, max_model_len=64)
    with pytest.raises(RequestError, match="must fit the KV cache of 32 tokens, got 33"):
        add(engine, "a", range(33))
    add(engine, "b", range(32), max_tokens=1)
    assert set(run_to_end(engine)) == {"b"}


def test_the_longest_possible_prompt_gives_one_token() -> None:
    """max_model_len - 1 tokens: one token and LENGTH."""
    engine = make_engine(max_model_len=64)
    add(engine, prompt=range(63), max_tokens=None)
    [output] = run_to_end(engine)["r"]
    assert (len(output.new_token_ids), output.finish_reason) == (1, FinishReason.LENGTH)


def test_a_salt_separates_prefixes() -> None:
    """Two tenants with the same prompt share nothing."""
    engine = make_engine()
    for request_id, salt in (("a", "x"), ("b", "y"), ("c", "x")):
        message = make_message(request_id, PROMPT, SamplingParams(max_tokens=1), cache_salt=salt)
        engine.add_request(engine.preprocess_add_request(message))
        [output] = run_to_end(engine)[request_id]
        assert output.prefill_stats is not None
        assert output.prefill_stats.num_cached_tokens == (12 if request_id == "c" else 0)


def test_the_ready_response_gives_the_sizes() -> None:
    """As the genuine core computes them, the null block included."""
    ready = make_engine(num_blocks=9, block_size=4, max_model_len=24).ready_response
    assert (ready.max_model_len, ready.num_gpu_blocks, ready.block_size, ready.dtype) == (24, 9, 4, "float32")
    assert (ready.kv_cache_size_tokens, ready.kv_cache_max_concurrency) == (36, 1.5)
    assert (ready.max_num_seqs, ready.max_num_batched_tokens, ready.enable_sleep_mode) == (8, 64, True)


def build(memory: int | None, available: int = 1 << 20, max_num_seqs: int = 2, max_model_len: int = 64) -> int:
    """The number of blocks of an engine with this memory, 8 bytes per token and 4 tokens per block."""
    engine = EngineCore(
        FakeExecutor(kv_cache_bytes=available),
        CacheConfig(block_size=4, kv_cache_memory_bytes=memory),
        SchedulerConfig(max_num_seqs, 64),
        max_model_len,
    )
    return engine.ready_response.num_gpu_blocks


def test_blocks_are_as_many_as_the_memory_holds_and_can_be_used() -> None:
    """The configured memory or the executor's, but no more than max_num_seqs x max_model_len tokens need."""
    assert build(memory=20 * 32 + 31) == 20
    assert build(memory=None, available=20 * 32) == 20
    assert build(memory=1 << 60) == 2 * 16 + 1


def test_memory_for_less_than_two_blocks_is_refused_with_the_numbers() -> None:
    """The null block and one more is the least."""
    with pytest.raises(ValueError, match=r"at least 2 blocks of 32 bytes \(64 bytes\), got 63"):
        build(memory=63)


def test_memory_that_is_not_there_is_refused_with_the_numbers() -> None:
    """Before it is taken: the system would promise it, and kill who uses it."""
    with pytest.raises(ValueError, match=r"kv_cache_memory must be at most 640 bytes \(0 MiB free, .*\), got 1056"):
        build(memory=1 << 60, available=320)


def test_the_size_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Blocks, tokens, bytes, those of a token, and what they were computed from."""
    with caplog.at_level(logging.INFO):
        build(memory=None, available=20 * 32)
    sizes = "the KV cache: 20 blocks of 4 tokens, 80 tokens in all, 0 MiB, groups of layers: 1, of 8 bytes a token"
    assert f"{sizes}; memory: 0 MiB free" in caplog.text


def test_a_context_that_does_not_fit_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """The engine starts, but says that no request can reach max_model_len."""
    with caplog.at_level(logging.WARNING):
        build(memory=16 * 32)
    assert "holds 60 tokens: no request reaches max_model_len 64" in caplog.text


def test_the_same_id_draws_with_the_same_seed() -> None:
    """A request sent again under its id, to another engine, is given the same seed."""
    one, other = (make_engine().preprocess_add_request(make_message("a")) for _ in range(2))
    assert one.seed == other.seed


def test_a_leaked_block_is_found() -> None:
    """With the numbers; an engine that has lost nothing is content, whatever it did before."""
    engine = make_engine()
    add(engine, "a", PROMPT, max_tokens=5)
    engine.step()
    engine.abort_requests(["a"])
    engine.check_integrity()
    add(engine, "b", PROMPT, max_tokens=5)
    engine.step()
    engine.scheduler.requests["b"].block_tables[0].pop()
    with pytest.raises(RuntimeError, match="3 blocks, 0 of them null, for 16 slots"):
        engine.check_integrity()
    give_up(engine)


def test_shutdown_frees_the_executor() -> None:
    """It may be called twice."""
    executor = FakeExecutor()
    engine = make_engine(executor=executor)
    add(engine, max_tokens=5)
    step(engine)
    engine.shutdown()
    engine.shutdown()
    assert executor.request_ids == set()
