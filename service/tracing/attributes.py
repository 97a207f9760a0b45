"""What a span says of its call: names of OpenTelemetry's conventions for RPC and GenAI, and vLLM's where it has others.

Never a word of prompt or output, nor of the texts that a request has beside them, as stop strings.
"""

from collections.abc import Iterable, Iterator

from core.wire.messages import FinishReason
from core.wire.sampling_params import SamplingParams
from service.calls.call import Call, SequenceEnd

Value = str | int | float | list[str]
_PROVIDER = "sluicegate"
_OF_PARAMS = "temperature", "top_p", "top_k", "max_tokens", "seed", "frequency_penalty", "presence_penalty"


def rpc_attributes(method: str, peer: str) -> dict[str, Value]:
    """Known from the start."""
    return {"rpc.system.name": "grpc", "rpc.method": method.removeprefix("/"), "network.peer.address": peer}


def request_attributes(call: Call, duration_s: float) -> Iterator[tuple[str, Value]]:
    """Known at the end. A call that put nothing to a core has few."""
    if call.request_id:
        yield "gen_ai.request.id", call.request_id
    if call.key_name:
        yield "sluicegate.key.name", call.key_name
    if not call.num_sequences:
        return
    yield "gen_ai.provider.name", _PROVIDER
    yield "gen_ai.operation.name", "embeddings" if call.sampling_params is None else "text_completion"
    yield "gen_ai.request.model", call.model
    yield "gen_ai.response.model", call.model
    yield "gen_ai.response.id", call.request_id
    yield "gen_ai.request.n", call.num_sequences
    yield "gen_ai.request.choice.count", call.num_sequences
    yield "gen_ai.latency.e2e", duration_s
    if call.sampling_params is not None:
        yield from _params(call.sampling_params)
    yield from _usage(call)
    yield from _latencies(call)


def sequence_attributes(end: SequenceEnd) -> dict[str, Value]:
    """Of one of the spans of a sequence."""
    return {"sluicegate.sequence.id": end.core_id, "sluicegate.num_preemptions": end.num_preemptions}


def _params(params: SamplingParams) -> Iterator[tuple[str, Value]]:
    for name in _OF_PARAMS:
        if (value := getattr(params, name)) is not None:
            yield f"gen_ai.request.{name}", value


def _usage(call: Call) -> Iterator[tuple[str, Value]]:
    for name in ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"):
        yield name, call.num_prompt_tokens
    yield "gen_ai.usage.cache_read.input_tokens", max((end.num_cached_tokens for end in call.ends), default=0)
    for name in ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"):
        yield name, call.num_output_tokens
    yield "gen_ai.usage.num_sequences", call.num_sequences
    yield "gen_ai.response.finish_reasons", [_word(end.reason) for end in call.ends]


def _latencies(call: Call) -> Iterator[tuple[str, Value]]:
    """Of the sequence that took longest, in each."""
    if (ttft_s := call.time_to_first_token_s) is not None:
        yield "gen_ai.latency.time_to_first_token", ttft_s
        yield "gen_ai.response.time_to_first_chunk", ttft_s
    parts = {
        "time_in_queue": ("queued_at", "scheduled_at"),
        "time_in_model_prefill": ("scheduled_at", "first_token_at"),
        "time_in_model_decode": ("first_token_at", "last_token_at"),
        "time_in_model_inference": ("scheduled_at", "last_token_at"),
    }
    for name, (start, end) in parts.items():
        if durations := [*_durations(call.ends, start, end)]:
            yield f"gen_ai.latency.{name}", max(durations)


def _durations(ends: Iterable[SequenceEnd], start: str, end: str) -> Iterator[float]:
    for sequence in ends:
        started_at, ended_at = getattr(sequence, start), getattr(sequence, end)
        if started_at is not None and ended_at is not None:
            yield ended_at - started_at


def _word(reason: FinishReason) -> str:
    return reason.name.lower()
