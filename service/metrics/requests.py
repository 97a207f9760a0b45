"""What requests cost and how long they took: counted as the core's messages come, however they are read later.

A request is one sequence here, as it is to the core; those that were added together are one call's. How long things
took in the core is told by the core's clock, the time stamps of its messages; how long a client waits is measured here.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from core.wire.messages import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EventType,
    FinishReason,
    PrefillStats,
)
from service.metrics.request_totals import RequestTotals


@dataclass(slots=True)
class _Call:
    """The requests that were added together."""

    n: int
    num_live: int
    max_generation_tokens: int = 0


@dataclass(slots=True)
class _Life:
    """One live request; times are the core's, ``arrived_at`` apart. None: it has not come so far."""

    totals: RequestTotals
    call: _Call
    num_prompt_tokens: int
    max_tokens: int | None
    arrived_at: float
    lora_name: str | None = None
    queued_at: float | None = None
    scheduled_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float = 0.0
    num_generation_tokens: int = 0
    is_corrupted: bool = False


class RequestMetrics:
    """Follows each request from ``add`` to its end, which counts once, whoever brings it about."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.totals: defaultdict[int, RequestTotals] = defaultdict(RequestTotals)
        """By the rank of the core."""
        self._clock = clock
        self._live: dict[str, _Life] = {}

    def __repr__(self) -> str:
        return f"RequestMetrics({len(self._live)} live)"

    def add(self, requests: Sequence[EngineCoreRequest], rank: int = 0) -> None:
        """One call's requests have gone to the core of ``rank``."""
        totals, call, now = self.totals[rank], _Call(len(requests), len(requests)), self._clock()
        for request in requests:
            max_tokens = request.sampling_params.max_tokens if request.sampling_params else None
            num_prompt_tokens = request.num_prompt_tokens
            lora_name = request.lora_request.lora_name if request.lora_request is not None else None
            self._live[request.request_id] = _Life(totals, call, num_prompt_tokens, max_tokens, now, lora_name)

    @property
    def running_loras(self) -> set[str]:
        """Adapters that live requests run with: those that have been scheduled."""
        return {life.lora_name for life in self._live.values() if life.lora_name and life.scheduled_at is not None}

    @property
    def waiting_loras(self) -> set[str]:
        """Adapters that live requests are yet to run with."""
        return {life.lora_name for life in self._live.values() if life.lora_name and life.scheduled_at is None}

    def record(self, outputs: EngineCoreOutputs) -> None:
        """One message of a core. Outputs of requests that have ended here count no more."""
        if not outputs.outputs:
            return
        num_tokens = sum(self._record_output(output, outputs.timestamp) for output in outputs.outputs)
        self.totals[outputs.engine_index].tokens_per_step.observe(num_tokens)

    def end(self, request_ids: Iterable[str], reason: FinishReason) -> None:
        """These requests have ended. Those that had before, or never were, are ignored."""
        for request_id in request_ids:
            if (life := self._live.pop(request_id, None)) is not None:
                life.totals.num_finished[reason] += 1
                _count_tokens(life)
                _count_times(life, self._clock())

    def _record_output(self, output: EngineCoreOutput, now: float) -> int:
        """The tokens it brings: those generated, and with the first output those of the prompt."""
        life = self._live.get(output.request_id)
        if life is None:
            return 0
        num_tokens = len(output.new_token_ids)
        life.num_generation_tokens += num_tokens
        life.totals.num_generation_tokens += num_tokens
        if output.events:
            _note_events(life, output)
        if num_tokens:
            self._note_tokens(life, now)
        if output.prefill_stats is not None:
            _count_prefill(life.totals, output.prefill_stats)
            num_tokens += output.prefill_stats.num_prompt_tokens
        if output.num_nans_in_logits and not life.is_corrupted:
            life.is_corrupted = True
            life.totals.num_corrupted += 1
        if output.finish_reason is not None:
            self.end([output.request_id], output.finish_reason)
        return num_tokens

    def _note_tokens(self, life: _Life, now: float) -> None:
        if life.first_token_at is None:
            life.first_token_at = now
            life.totals.time_to_first_token_s.observe(self._clock() - life.arrived_at)
        else:
            life.totals.inter_token_latency_s.observe(now - life.last_token_at)
        life.last_token_at = now


def _note_events(life: _Life, output: EngineCoreOutput) -> None:
    for event in output.events or ():
        if event.type is EventType.QUEUED:
            life.queued_at = event.timestamp
        elif event.type is EventType.SCHEDULED and life.scheduled_at is None:
            life.scheduled_at = event.timestamp


def _count_prefill(totals: RequestTotals, stats: PrefillStats) -> None:
    totals.num_prompt_tokens += stats.num_prompt_tokens
    totals.num_computed_tokens += stats.num_computed_tokens
    totals.num_cached_tokens += stats.num_cached_tokens
    totals.num_local_cached_tokens += stats.num_local_cached_tokens
    totals.num_external_cached_tokens += stats.num_external_cached_tokens
    totals.prefill_computed_tokens.observe(stats.num_prompt_tokens - stats.num_cached_tokens)


def _count_tokens(life: _Life) -> None:
    totals, call = life.totals, life.call
    totals.prompt_tokens.observe(life.num_prompt_tokens)
    totals.generation_tokens.observe(life.num_generation_tokens)
    if life.max_tokens is not None:
        totals.max_tokens.observe(life.max_tokens)
    call.max_generation_tokens = max(call.max_generation_tokens, life.num_generation_tokens)
    call.num_live -= 1
    if call.num_live == 0:
        totals.max_generation_tokens.observe(call.max_generation_tokens)
        totals.n.observe(call.n)


def _count_times(life: _Life, now: float) -> None:
    """Only what has both a beginning and an end: a request that is aborted while it waits has no prefill time."""
    totals = life.totals
    totals.e2e_s.observe(now - life.arrived_at)
    if life.scheduled_at is not None and life.queued_at is not None:
        totals.queue_s.observe(life.scheduled_at - life.queued_at)
    if life.first_token_at is None:
        return
    decode_s = life.last_token_at - life.first_token_at
    totals.decode_s.observe(decode_s)
    if life.num_generation_tokens > 1:
        totals.time_per_output_token_s.observe(decode_s / (life.num_generation_tokens - 1))
    if life.scheduled_at is not None:
        totals.prefill_s.observe(life.first_token_at - life.scheduled_at)
        totals.inference_s.observe(life.last_token_at - life.scheduled_at)
