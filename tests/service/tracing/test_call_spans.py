"""What a span tells of its call, without a server around."""

from typing import Any

import grpc
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from core.wire.messages import EngineCoreRequest, FinishReason
from core.wire.pooling_params import PoolingParams
from core.wire.sampling_params import SamplingParams
from service.calls.call import Call, SequenceEnd
from service.tracing.call_spans import CallSpans


class Context:
    """As much of a call's as is asked for."""

    def peer(self) -> str:
        return "ipv4:10.0.0.7:1234"


def spans_of(call: Call, code: grpc.StatusCode = grpc.StatusCode.OK) -> list[ReadableSpan]:
    """In the order of their ends: the call's own is the last."""
    exporter, provider, context = InMemorySpanExporter(), TracerProvider(), Context()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans: Any = CallSpans(provider.get_tracer("test"))
    spans.begin(call, context, is_stream=True)
    spans.end(call, context, code, is_stream=True)
    return list(exporter.get_finished_spans())


def an_end(core_id: str, queued_at: float | None = 1.0, last_token_at: float | None = 4.0) -> SequenceEnd:
    return SequenceEnd(core_id, FinishReason.STOP, 2, 0, 3, queued_at, 2.0, 3.0, last_token_at, 3.0)


def test_events() -> None:
    """What befell a request on its way, as being resumed by another core, is an event of its span."""
    call = Call("/S/M")
    call.note("resumed")
    (span,) = spans_of(call)
    assert [(event.name, event.timestamp) for event in span.events] == call.events


def test_what_is_missing() -> None:
    """Parts of which a beginning or an end is not known are left out; others are there."""
    call = Call("/S/M")
    call.ends += [an_end("a", queued_at=None), an_end("b", last_token_at=None)]
    assert [span.name for span in spans_of(call)] == ["prefill", "decode", "queue", "prefill", "S/M"]


def test_many_sequences() -> None:
    """Of a call with very many sequences the first ones are shown."""
    call = Call("/S/M")
    call.ends += [an_end(str(i)) for i in range(1000)]
    assert len(spans_of(call)) == 3 * 16 + 1


def test_an_embedding() -> None:
    """Has no sampling parameters and no tokens that come out."""
    call = Call("/S/Embed", model="m")
    params = PoolingParams(task="embed")
    call.submit([EngineCoreRequest("e-1", [1, 2], None, None, params, 0.0, None, None, None, external_req_id="e")])
    (span,) = spans_of(call)
    assert span.attributes is not None
    assert span.attributes["gen_ai.operation.name"] == "embeddings"
    assert span.attributes["gen_ai.usage.input_tokens"] == 2
    assert span.attributes["network.peer.address"] == "ipv4:10.0.0.7:1234"
    assert "gen_ai.request.temperature" not in span.attributes


def test_preemptions_and_keys() -> None:
    """How often a sequence was put back, and by which key the call came, are told; stop strings are not."""
    call = Call("/S/M")
    call.key_name = "team"
    params = SamplingParams(temperature=0.0, stop=["a secret"])
    call.submit([EngineCoreRequest("r-1", [1], None, params, None, 0.0, None, None, None)])
    call.ends.append(an_end("r-1"))
    *parts, span = spans_of(call)
    assert all(part.attributes and part.attributes["sluicegate.num_preemptions"] == 3 for part in parts)
    assert span.attributes is not None
    assert span.attributes["sluicegate.key.name"] == "team"
    assert span.attributes["gen_ai.request.temperature"] == 0
    assert "secret" not in str(dict(span.attributes))
