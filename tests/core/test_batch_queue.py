"""Two steps in flight: the second is scheduled before the first has run, and no race between them shows outside."""

from collections.abc import Callable, Container
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from core.batch_queue import BatchQueue
from core.block_pool import Block
from core.executor.fake import FAKE_MODEL, FakeExecutor
from core.executor.fake_request import FakeExecutorError
from core.step import Step
from core.wire.messages import FinishReason
from tests.core.builders import add, expected_tokens, flatten, make_engine, make_request, run_to_end, step, tokens_of
from tests.core.recording_executor import TimedExecutor

PROMPT = list(range(100, 113))


class Harness:
    """An engine with two steps in flight, each of which runs when it is waited for; its steps can be acted upon."""

    def __init__(self, runs_late: bool = True, nan_request_ids: Container[str] = (), **sizes: int) -> None:
        self.num_queued: list[int] = []
        self.actions: dict[int, Callable[[], Any]] = {}
        self.executor = FakeExecutor(on_step=self._on_step, runs_late=runs_late, nan_request_ids=nan_request_ids)
        self.engine = make_engine(async_scheduling=True, executor=self.executor, **sizes)

    def _on_step(self, number: int) -> None:
        self.num_queued.append(self.executor.num_queued_steps)
        self.actions.get(number, lambda: None)()


def test_a_step_is_scheduled_before_the_one_before_it_has_run() -> None:
    """Four tokens: behind each step but the last the next waits already; then the step that reports the end."""
    harness = Harness()
    add(harness.engine, prompt=PROMPT, max_tokens=4)
    assert tokens_of(run_to_end(harness.engine)["r"]) == expected_tokens(PROMPT, 4)
    assert harness.num_queued == [1, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("async_scheduling", "needs_lockstep", "most_queued"), [(False, False, 0), (True, False, 1), (True, True, 0)]
)
def test_how_many_steps_are_in_flight(async_scheduling: bool, needs_lockstep: bool, most_queued: int) -> None:
    """As asked; but ranks in lockstep take one at a time in any case."""
    queued: list[int] = []
    executor = FakeExecutor(
        model_info=msgspec.structs.replace(FAKE_MODEL, needs_lockstep=needs_lockstep),
        on_step=lambda _: queued.append(executor.num_queued_steps),
        runs_late=True,
    )
    engine = make_engine(executor=executor, async_scheduling=async_scheduling)
    add(engine, prompt=PROMPT, max_tokens=4)
    assert tokens_of(run_to_end(engine)["r"]) == expected_tokens(PROMPT, 4)
    assert max(queued) == most_queued


def test_a_step_is_timed_from_when_it_can_run() -> None:
    """4 seconds and one for each token: the time that it waits behind another is not its own, nor is that between."""
    executor = TimedExecutor(base_s=4, token_s=1, runs_late=True)
    queue = BatchQueue(executor, 2, executor.clock)
    executor.initialize_kv_cache(num_blocks=9, block_size=16)
    seconds = []
    for number, num_tokens in enumerate((3, 5, 7)):
        queue.start(make_step(f"r{number}", num_tokens))
        if number:
            seconds.append(queue.wait_for_oldest().seconds)
    seconds.append(queue.wait_for_oldest().seconds)
    executor.now_s += 100
    queue.start(make_step("r3", 9))
    assert [*seconds, queue.wait_for_oldest().seconds] == [7, 9, 11, 13]


def make_step(request_id: str, num_tokens: int) -> Step:
    """A request's first, which computes its whole prompt."""
    request = make_request(request_id, range(num_tokens), max_tokens=1)
    request.block_tables = [[Block(1)]]
    step = Step(100)
    step.begin(request)
    return step


def test_a_long_prefill_is_cut_while_its_first_piece_runs() -> None:
    """13 tokens at 4 a step, next to one that decodes: both get their own tokens."""
    harness = Harness(max_num_seqs=2, max_num_batched_tokens=5)
    add(harness.engine, "decoding", [1, 2], max_tokens=9)
    step(harness.engine)
    add(harness.engine, "long", PROMPT, max_tokens=3)
    received = run_to_end(harness.engine)
    assert tokens_of(received["decoding"]) == expected_tokens([1, 2], 9)[1:]
    assert tokens_of(received["long"]) == expected_tokens(PROMPT, 3)


def test_no_step_is_wasted_on_a_request_whose_end_is_known_beforehand() -> None:
    """max_tokens, or the longest context: as many steps as tokens, and one that reports the end."""
    for max_tokens, num_tokens in ((3, 3), (None, 19)):
        harness = Harness(max_model_len=32)
        add(harness.engine, prompt=PROMPT, max_tokens=max_tokens)
        assert tokens_of(run_to_end(harness.engine)["r"]) == expected_tokens(PROMPT, num_tokens)
        assert len(harness.num_queued) == num_tokens + 1


def test_a_stop_found_late_costs_a_token_that_nobody_sees() -> None:
    """The step in flight computes one more, which is not sent; the statistics say that nobody runs."""
    harness = Harness()
    tokens = expected_tokens(PROMPT, 3)
    add(harness.engine, prompt=PROMPT, max_tokens=9, stop_token_ids=[tokens[-1]])
    outputs = run_to_end(harness.engine)["r"]
    assert tokens_of(outputs) == tokens
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == (FinishReason.STOP, tokens[-1])
    assert len(harness.num_queued) == 5
    assert harness.executor.request_ids == set()


def test_the_surplus_token_is_not_found_in_the_prefix_cache() -> None:
    """A prompt that goes on from the answer finds its whole blocks, none of which holds what came after the stop."""
    harness = Harness()
    tokens = expected_tokens(PROMPT, 3)
    add(harness.engine, "a", PROMPT, max_tokens=9, stop_token_ids=[tokens[-1]])
    run_to_end(harness.engine)
    longer = [*PROMPT, *tokens, 7, 8]
    add(harness.engine, "b", longer, max_tokens=2)
    outputs = run_to_end(harness.engine)["b"]
    assert tokens_of(outputs) == expected_tokens(longer, 2)
    assert outputs[0].prefill_stats is not None
    assert outputs[0].prefill_stats.num_cached_tokens == 12


@pytest.mark.parametrize("runs_late", [False, True], ids=["early", "late"])
def test_the_blocks_of_an_aborted_request_serve_another_while_its_step_is_in_flight(runs_late: bool) -> None:
    """The whole pool changes hands between two steps; the newcomer's tokens are its own."""
    harness = Harness(runs_late, num_blocks=5)
    add(harness.engine, "a", PROMPT, max_tokens=9)
    step(harness.engine)
    harness.engine.abort_requests(["a"])
    add(harness.engine, "b", range(50, 63), max_tokens=3)
    received = run_to_end(harness.engine)
    assert {"b"} == set(received)
    assert tokens_of(received["b"]) == expected_tokens(range(50, 63), 3)


@pytest.mark.parametrize("runs_late", [False, True], ids=["early", "late"])
def test_the_id_of_an_aborted_request_is_free_while_its_step_is_in_flight(runs_late: bool) -> None:
    """The token of the old request is not given to the new one."""
    harness = Harness(runs_late)
    add(harness.engine, "a", PROMPT, max_tokens=9)
    step(harness.engine)
    harness.engine.abort_requests(["a"])
    add(harness.engine, "a", [7, 8], max_tokens=3)
    assert tokens_of(run_to_end(harness.engine)["a"]) == expected_tokens([7, 8], 3)


def test_an_abort_while_a_step_runs_takes_effect_in_that_step_and_the_next() -> None:
    """Neither the token being computed nor the one in flight behind it is sent; the neighbour's are."""
    harness = Harness()
    harness.actions[2] = lambda: harness.engine.aborts_queue.put(["a"])
    add(harness.engine, "a", max_tokens=5)
    add(harness.engine, "b", max_tokens=5)
    assert [set(step(harness.engine)) for _ in range(3)] == [{"a", "b"}, {"b"}, {"b"}]
    assert len(run_to_end(harness.engine)["b"]) == 2


def test_a_preemption_with_a_step_in_flight_discards_what_that_step_gives() -> None:
    """Two outgrow a pool that holds either: both get their own tokens, the younger by computing some twice."""
    harness = Harness(num_blocks=9)
    prompts = {"a": PROMPT, "b": list(range(50, 63))}
    for request_id, prompt in prompts.items():
        add(harness.engine, request_id, prompt, max_tokens=15)
    received = run_to_end(harness.engine)
    assert {request_id: tokens_of(outputs) for request_id, outputs in received.items()} == {
        request_id: expected_tokens(prompt, 15) for request_id, prompt in prompts.items()
    }
    assert harness.engine.scheduler.num_preemptions > 0


def test_a_reset_prefix_cache_discards_what_is_in_flight() -> None:
    """Everybody starts over from an empty cache, prompt log-probabilities too, and gets each token once."""
    harness = Harness()
    for request_id in ("a", "b"):
        add(harness.engine, request_id, [*PROMPT, ord(request_id)], max_tokens=6, prompt_logprobs=1)
    received = [step(harness.engine)]
    assert harness.engine.call_utility("reset_prefix_cache", [True])
    for request_id, outputs in run_to_end(harness.engine).items():
        outputs.insert(0, received[0][request_id])
        assert tokens_of(outputs) == expected_tokens([*PROMPT, ord(request_id)], 6)
        assert [output.new_prompt_logprobs_tensors is not None for output in outputs] == [True] + [False] * 5


def test_prompt_logprobs_of_a_discarded_prefill_come_with_the_next_one() -> None:
    """The reset comes while the last piece of the prompt is in flight."""
    harness = Harness(max_num_batched_tokens=8)
    add(harness.engine, prompt=PROMPT, max_tokens=3, prompt_logprobs=1)
    step(harness.engine)
    harness.engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    first, *others = run_to_end(harness.engine)["r"]
    assert first.new_prompt_logprobs_tensors is not None
    assert len(first.new_prompt_logprobs_tensors.ranks.array) == len(PROMPT) - 1
    assert tokens_of([first, *others]) == expected_tokens(PROMPT, 3)


def test_nobody_finds_a_prefix_that_is_still_being_computed() -> None:
    """The same prompt, come while the first one's prefill is in flight, waits until that has filled its blocks."""
    harness = Harness()
    add(harness.engine, "a", PROMPT, max_tokens=2)
    harness.actions[1] = lambda: add(harness.engine, "b", PROMPT, max_tokens=2)
    received = run_to_end(harness.engine)
    assert received["b"][0].prefill_stats is not None
    assert received["b"][0].prefill_stats.num_cached_tokens == 12
    assert tokens_of(received["a"]) == tokens_of(received["b"]) == expected_tokens(PROMPT, 2)


@pytest.mark.parametrize("mode", ["wait", "keep"])
def test_a_pause_is_answered_when_nothing_is_in_flight(mode: str) -> None:
    """What is in flight is delivered first; frozen requests go on after the resume as if nothing had been."""
    harness = Harness()
    add(harness.engine, prompt=PROMPT, max_tokens=5)
    outputs = [step(harness.engine)["r"]]
    answer: Future[None] = harness.engine.call_utility("pause_scheduler", [mode, False])
    while harness.engine.has_requests():
        assert not answer.done()
        outputs += step(harness.engine).values()
    assert answer.done()
    assert tokens_of(outputs) == expected_tokens(PROMPT, 2 if mode == "keep" else 5)
    harness.engine.call_utility("resume_scheduler", [])
    outputs += run_to_end(harness.engine).get("r", [])
    assert tokens_of(outputs) == expected_tokens(PROMPT, 5)


def test_requests_frozen_with_a_step_in_flight_end_with_a_final_output_when_the_core_shuts_down() -> None:
    """abort_all after a pause: the step in flight adds nothing to it, and then nothing is left to do."""
    harness = Harness()
    add(harness.engine, prompt=PROMPT, max_tokens=5)
    step(harness.engine)
    harness.engine.call_utility("pause_scheduler", ["keep", False])
    assert flatten([harness.engine.abort_all()])["r"].finish_reason is FinishReason.ABORT
    assert run_to_end(harness.engine) == {}
    harness.engine.check_integrity()


def test_nan_logits_end_their_request_alone_with_a_step_in_flight() -> None:
    """One final output, and nobody finds the blocks it came from, though the next step has written to them as well."""
    harness = Harness(nan_request_ids={"bad"}, max_num_batched_tokens=8)
    add(harness.engine, "bad", PROMPT, max_tokens=5)
    add(harness.engine, "good", PROMPT[1:], max_tokens=5)
    received = run_to_end(harness.engine)
    assert [output.finish_reason for output in received["bad"]] == [FinishReason.ERROR]
    assert tokens_of(received["good"]) == expected_tokens(PROMPT[1:], 5)
    add(harness.engine, "again", PROMPT, max_tokens=2)
    [first, _] = run_to_end(harness.engine)["again"]
    assert first.prefill_stats is not None
    assert first.prefill_stats.num_cached_tokens == 0


def test_a_failed_executor_fails_the_steps_in_flight() -> None:
    """The step that runs and those behind it: nobody waits for them in vain."""
    harness = Harness()
    add(harness.engine, prompt=PROMPT, max_tokens=5)
    step(harness.engine)
    harness.executor.fail()
    with pytest.raises(FakeExecutorError, match="step 2: the executor has failed"):
        harness.engine.step()


def test_the_gauges_go_back_when_all_are_aborted_with_a_step_in_flight() -> None:
    """Twenty running: the last message of statistics says that none runs or waits, and that no block is held."""
    harness = Harness(num_blocks=129, max_num_seqs=16)
    for index in range(20):
        add(harness.engine, str(index), PROMPT, max_tokens=9)
    step(harness.engine)
    harness.engine.abort_requests([str(index) for index in range(20)])
    messages = []
    while harness.engine.has_requests():
        messages += harness.engine.step()[0].values()
    stats = messages[-1].scheduler_stats
    assert stats is not None
    assert (stats.num_running_reqs, stats.num_waiting_reqs, stats.kv_cache_usage) == (0, 0, 0.0)
    assert all(message.outputs == [] for message in messages)
