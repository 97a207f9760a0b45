"""What is counted of requests on their way."""

from typing import Any

import pytest

from core.wire.messages import (
    EngineCoreEvent,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EventType,
    FinishReason,
    PrefillStats,
)
from core.wire.sampling_params import SamplingParams
from service.calls.call import Call, SequenceEnd, running
from service.metrics.histogram import Histogram
from service.metrics.request_totals import RequestTotals
from service.metrics.requests import RequestMetrics


class Clock:
    """One that is set by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> RequestMetrics:
    return RequestMetrics(clock)


def a_request(request_id: str) -> EngineCoreRequest:
    params = SamplingParams(max_tokens=7)
    return EngineCoreRequest(request_id, [1, 2, 3], None, params, None, 0.0, None, None, None)


def record(metrics: RequestMetrics, now: float, *outputs: EngineCoreOutput) -> None:
    metrics.record(EngineCoreOutputs(outputs=list(outputs), timestamp=now))


def first_output(request_id: str, queued_at: float, scheduled_at: float, **values: Any) -> EngineCoreOutput:
    events = [EngineCoreEvent(EventType.QUEUED, queued_at), EngineCoreEvent(EventType.SCHEDULED, scheduled_at)]
    stats = PrefillStats(3, num_computed_tokens=1, num_cached_tokens=2, num_local_cached_tokens=2)
    return EngineCoreOutput(request_id, [5], events=events, prefill_stats=stats, **values)


def seen(histogram: Histogram) -> tuple[float, float]:
    """How many values, and their sum."""
    return histogram.buckets()[-1][1], pytest.approx(histogram.sum)


def counted(totals: RequestTotals) -> dict[str, int]:
    return {reason.name: count for reason, count in totals.num_finished.items() if count}


def test_life_of_a_request(metrics: RequestMetrics, clock: Clock) -> None:
    """Times in the core come from its own clock, the first token and the whole from the one of whoever waits."""
    metrics.add([a_request("a")])
    clock.now += 2
    record(metrics, 50.5, first_output("a", queued_at=50, scheduled_at=50.25))
    record(metrics, 50.75, EngineCoreOutput("a", [6]))
    clock.now += 1
    record(metrics, 51.5, EngineCoreOutput("a", [7], finish_reason=FinishReason.LENGTH))
    totals = metrics.totals[0]
    assert seen(totals.time_to_first_token_s) == (1, 2)
    assert seen(totals.inter_token_latency_s) == (2, 1)
    assert seen(totals.time_per_output_token_s) == (1, 0.5)
    assert seen(totals.e2e_s) == (1, 3)
    assert seen(totals.queue_s) == (1, 0.25)
    assert seen(totals.prefill_s) == (1, 0.25)
    assert seen(totals.decode_s) == (1, 1)
    assert seen(totals.inference_s) == (1, 1.25)
    assert counted(totals) == {"LENGTH": 1}


@pytest.mark.parametrize("ahead_s", [0, -50_000, 50_000])
def test_a_core_with_another_clock_goes_on(metrics: RequestMetrics, clock: Clock, ahead_s: float) -> None:
    """Of another machine maybe: times are as if the first core had gone on, the pause included."""
    metrics.add([a_request("a")])
    record(metrics, 50.5, first_output("a", queued_at=50, scheduled_at=50.25))
    record(metrics, 51, EngineCoreOutput("a", [6]))
    metrics.note_resumed(["a", "unknown"])
    clock.now += 3
    record(metrics, ahead_s + 53.5, EngineCoreOutput("a", [7]))
    record(metrics, ahead_s + 53.75, EngineCoreOutput("a", [8]))
    record(metrics, ahead_s + 54, EngineCoreOutput("a", [9], finish_reason=FinishReason.LENGTH))
    totals = metrics.totals[0]
    assert seen(totals.inter_token_latency_s) == (4, 3.5)
    assert seen(totals.decode_s) == (1, 3.5)
    assert seen(totals.inference_s) == (1, 3.75)


def test_tokens(metrics: RequestMetrics) -> None:
    """Tokens count when they arrive: those of the prompt by where they came from, once; a step has both kinds."""
    metrics.add([a_request("a")])
    metrics.add([a_request("b")])
    record(metrics, 1, first_output("a", 0, 0), EngineCoreOutput("b", [1, 2]))
    record(metrics, 2, EngineCoreOutput("a", [1]))
    metrics.record(EngineCoreOutputs())
    totals = metrics.totals[0]
    assert (totals.num_prompt_tokens, totals.num_generation_tokens) == (3, 4)
    assert (totals.num_computed_tokens, totals.num_local_cached_tokens, totals.num_cached_tokens) == (1, 2, 2)
    assert seen(totals.tokens_per_step) == (2, 7)
    assert seen(totals.prefill_computed_tokens) == (1, 1)
    assert seen(totals.prompt_tokens) == (0, 0)


def test_a_request_ends_once(metrics: RequestMetrics) -> None:
    """Whoever ends it first says why; what the core still sends of it counts no more."""
    metrics.add([a_request("a")])
    metrics.end(["a", "unknown"], FinishReason.ABORT)
    record(metrics, 1, EngineCoreOutput("a", [1], finish_reason=FinishReason.STOP))
    metrics.end(["a"], FinishReason.ERROR)
    totals = metrics.totals[0]
    assert counted(totals) == {"ABORT": 1}
    assert totals.num_generation_tokens == 0
    assert repr(metrics) == "RequestMetrics(0 live)"


def test_aborted_before_it_ran(metrics: RequestMetrics) -> None:
    """It counts with its sizes and the time it waited, and has no times that it never had."""
    metrics.add([a_request("a")])
    metrics.end(["a"], FinishReason.ABORT)
    totals = metrics.totals[0]
    assert seen(totals.prompt_tokens) == (1, 3)
    assert seen(totals.generation_tokens) == (1, 0)
    assert seen(totals.max_tokens) == (1, 7)
    assert seen(totals.e2e_s) == (1, 0)
    never = totals.time_to_first_token_s, totals.queue_s, totals.prefill_s, totals.decode_s, totals.inference_s
    assert [seen(histogram) for histogram in never] == [(0, 0)] * 5


def test_sequences_of_one_call(metrics: RequestMetrics) -> None:
    """Each sequence is a request that ends; ``n`` and the longest sequence count once, with the last of them."""
    metrics.add([a_request("a"), a_request("b")])
    record(metrics, 1, EngineCoreOutput("a", [1, 2], finish_reason=FinishReason.STOP))
    totals = metrics.totals[0]
    assert seen(totals.n) == (0, 0)
    record(metrics, 2, EngineCoreOutput("b", [1], finish_reason=FinishReason.STOP))
    assert seen(totals.n) == (1, 2)
    assert seen(totals.max_generation_tokens) == (1, 2)
    assert counted(totals) == {"STOP": 2}


def test_preempted_and_scheduled_again(metrics: RequestMetrics) -> None:
    """It has waited until it was scheduled for the first time."""
    metrics.add([a_request("a")])
    output = first_output("a", queued_at=1, scheduled_at=2)
    assert output.events is not None
    output.events += [EngineCoreEvent(EventType.PREEMPTED, 3), EngineCoreEvent(EventType.SCHEDULED, 4)]
    record(metrics, 5, output)
    metrics.end(["a"], FinishReason.ABORT)
    assert seen(metrics.totals[0].queue_s) == (1, 1)


def test_corrupted_requests_count_once(metrics: RequestMetrics) -> None:
    """However often NaN turns up in its logits."""
    metrics.add([a_request("a")])
    for now in (1, 2):
        record(metrics, now, EngineCoreOutput("a", [1], num_nans_in_logits=5))
    assert metrics.totals[0].num_corrupted == 1


def test_each_core_has_its_own(metrics: RequestMetrics) -> None:
    """Requests count for the core that they were sent to."""
    metrics.add([a_request("a")], rank=1)
    metrics.end(["a"], FinishReason.ABORT)
    assert counted(metrics.totals[1]) == {"ABORT": 1}
    assert counted(metrics.totals[0]) == {}


def test_what_waits_is_the_youngest(metrics: RequestMetrics) -> None:
    """Prompts of those that have given nothing, the last that came first; each core has its own."""
    for name in ("a", "b", "c"):
        metrics.add([a_request(name)])
    metrics.add([a_request("other")], rank=1)
    record(metrics, 1, EngineCoreOutput("b", [5]))
    assert [metrics.num_waiting_tokens(0, num_waiting) for num_waiting in (0, 1, 2, 9)] == [0, 3, 6, 6]
    assert metrics.num_waiting_tokens(1, 9) == 3


def test_tokens_per_second_are_of_late(metrics: RequestMetrics, clock: Clock) -> None:
    """Those of the last two seconds, by two; those of the prompt are none."""
    metrics.add([a_request("a")])
    record(metrics, 1, first_output("a", 0.5, 0.75))
    record(metrics, 2, EngineCoreOutput("a", [5, 6, 7]))
    assert metrics.tokens_per_second(0) == 2
    assert metrics.totals[0].recent.cache_hit_rate == pytest.approx(2 / 3)
    clock.now += 10
    assert metrics.tokens_per_second(0) == 0


def test_calls_are_told(metrics: RequestMetrics, clock: Clock) -> None:
    """A call is told how each of its sequences went, and what befell them; whoever is not in a call is not."""
    with running(Call("/S/M")) as call:
        metrics.add([a_request("a"), a_request("b")])
    metrics.add([a_request("c")])
    clock.now += 2
    record(metrics, 50.0, first_output("a", 47.0, 48.0), first_output("c", 47.0, 48.0))
    metrics.note_resumed(["a", "b", "c", "d"])
    preempted = EngineCoreOutput("a", [6], events=[EngineCoreEvent(EventType.PREEMPTED, 51.0)])
    record(metrics, 52.0, preempted)
    record(metrics, 53.0, EngineCoreOutput("a", [7], finish_reason=FinishReason.LENGTH))
    metrics.end(["b", "c"], FinishReason.ABORT)
    assert [event for event, _ in call.events] == ["resumed"]
    assert call.ends == [
        SequenceEnd("a", FinishReason.LENGTH, 3, 2, 1, 47.0, 48.0, 50.0, 53.0, 1002.0),
        SequenceEnd("b", FinishReason.ABORT, 0, 0, 0, None, None, None, None, None),
    ]
    assert call.num_sequences == 2


def test_gaps_between_tokens_are_each_request_s_own(metrics: RequestMetrics) -> None:
    """One message may bring tokens of requests that had their last ones at different times, or have just begun."""
    metrics.add([a_request("a")])
    metrics.add([a_request("b")])
    record(metrics, 10.0, first_output("a", 1, 2))
    record(metrics, 10.5, EngineCoreOutput("a", [6]), first_output("b", 1, 2))
    record(metrics, 12.5, EngineCoreOutput("a", [7, 8]), EngineCoreOutput("b", [6]), EngineCoreOutput("nobody", [6]))
    record(metrics, 13.0, EngineCoreOutput("a", []), EngineCoreOutput("b", [7], finish_reason=FinishReason.LENGTH))
    totals = metrics.totals[0]
    assert seen(totals.inter_token_latency_s) == (4, 0.5 + 2.0 + 2.0 + 0.5)
    assert totals.num_generation_tokens == 7
    assert totals.generation_tokens.sum == 3
