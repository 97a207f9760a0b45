"""A span for each call, and under it what its sequences did in the core.

/sluicegate.v1.InferenceService/GenerateStream      from the first byte to the status
  └ queue, prefill, decode                          of each sequence, by the core's own time stamps

Of a call that carries several requests each has a span between: ``request``.
"""

import time
from collections.abc import Iterator

import grpc
from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, StatusCode

from service.calls.call import Call, SequenceEnd
from service.calls.interceptor import Context
from service.calls.probes import is_probe
from service.tracing.attributes import request_attributes, rpc_attributes, sequence_attributes
from service.tracing.core_clock import CoreClock

_MAX_SEQUENCES = 16
"""Of a call, to be shown one by one."""
_SERVER_ERRORS = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
"""Which statuses of a server's span are errors: the other ones are the caller's."""


class CallSpans:
    """The parent is the caller's span, of its metadata; whether it is sampled is its word, too."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._spans: dict[Call, trace.Span] = {}

    def begin(self, call: Call, context: Context, *, is_stream: bool) -> None:
        if is_probe(call.method):
            return
        carrier = {key: value for key, value in call.metadata if isinstance(value, str)}
        parent = propagate.extract(carrier)
        attributes = rpc_attributes(call.method, context.peer()) | {"gen_ai.request.stream": is_stream}
        name = call.method.removeprefix("/")
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, attributes)
        self._spans[call] = span
        if span.is_recording():
            headers: dict[str, str] = {}
            propagate.inject(headers, trace.set_span_in_context(span))
            call.trace(trace.format_trace_id(span.get_span_context().trace_id), headers)

    def end(self, call: Call, context: Context, code: grpc.StatusCode, *, is_stream: bool) -> None:  # noqa: ARG002
        span = self._spans.pop(call, None)
        if span is None:
            return
        if span.is_recording():
            self._describe(span, call, code)
        span.end()

    def end_part(self, call: Call, part: Call) -> None:
        span = self._spans.get(call)
        if span is None or not span.is_recording():
            return
        duration_s = time.monotonic() - part.started_at
        start_ns = time.time_ns() - int(duration_s * 1e9)
        parent = trace.set_span_in_context(span)
        attributes = dict(request_attributes(part, duration_s))
        request = self._tracer.start_span("request", parent, attributes=attributes, start_time=start_ns)
        self._add_parts(request, part)
        request.end()

    def miss(self) -> None:
        """Nothing: a call to what is not there."""

    def _describe(self, span: trace.Span, call: Call, code: grpc.StatusCode) -> None:
        span.set_attribute("rpc.response.status_code", code.name)
        span.set_attributes(dict(request_attributes(call, time.monotonic() - call.started_at)))
        if code is not grpc.StatusCode.OK:
            span.set_attribute("error.type", code.name)
        if code.name in _SERVER_ERRORS:
            span.set_status(StatusCode.ERROR)
        self._add_parts(span, call)

    def _add_parts(self, span: trace.Span, call: Call) -> None:
        for event, at_ns in call.events:
            span.add_event(event, timestamp=at_ns)
        parent = trace.set_span_in_context(span)
        for end in call.ends[:_MAX_SEQUENCES]:
            for name, start_ns, end_ns in _parts(end):
                part = self._tracer.start_span(name, parent, attributes=sequence_attributes(end), start_time=start_ns)
                part.end(max(start_ns, end_ns))


def _parts(end: SequenceEnd) -> Iterator[tuple[str, int, int]]:
    """Name, start and end of what has both. Without any token there is nothing to know the core's clock by."""
    if end.first_token_at is None or end.first_token_heard_at is None:
        return
    clock = CoreClock(end.first_token_at, end.first_token_heard_at)
    points = {
        "queue": (end.queued_at, end.scheduled_at),
        "prefill": (end.scheduled_at, end.first_token_at),
        "decode": (end.first_token_at, end.last_token_at if end.num_output_tokens > 1 else None),
    }
    for name, (started_at, ended_at) in points.items():
        if started_at is not None and ended_at is not None:
            yield name, clock.time_ns(started_at), clock.time_ns(ended_at)
