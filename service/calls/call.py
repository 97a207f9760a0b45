"""The call that runs, for whatever is done on its behalf: log lines name it, metrics tell it how its sequences ended.

CallInterceptor ── begins it ──▶ a context variable ──▶ the log's filter, the requests that go to the core
RequestMetrics ── the end of each sequence ──▶ the call ──▶ access log and spans, when the call ends
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass

from core.wire.messages import EngineCoreRequest, FinishReason
from core.wire.sampling_params import SamplingParams

_MAX_NAME_BYTES = 256
_TRACE_HEADERS = "traceparent", "tracestate"
_NO_HEADERS: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class SequenceEnd:
    """How one sequence went. ``…_at`` are the core's clock, ``…_heard_at`` the gateway's; None: it came not so far.

    A vector counts as a first token after which there are no others.
    """

    core_id: str
    reason: FinishReason
    num_output_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    queued_at: float | None
    scheduled_at: float | None
    first_token_at: float | None
    last_token_at: float | None
    first_token_heard_at: float | None


class Call:
    """One call. Owned by the event loop; what is not known yet is empty."""

    __slots__ = (
        "_trace_headers",
        "deadline",
        "ends",
        "events",
        "hear_part_end",
        "key_name",
        "metadata",
        "method",
        "model",
        "num_prompt_tokens",
        "num_sequences",
        "on_end",
        "request_id",
        "sampling_params",
        "started_at",
        "trace_id",
    )

    def __init__(self, method: str, metadata: Iterable[tuple[str, str | bytes]] = (), model: str = "") -> None:
        self.method = method
        self.model = model
        self.started_at = time.monotonic()
        self.deadline: float | None = None
        """On the clock of ``started_at``; None: the client waits for ever."""
        self.request_id = ""
        self.key_name = ""
        """Of the key that let it in."""
        self.trace_id = ""
        self.num_prompt_tokens = 0
        self.num_sequences = 0
        self.sampling_params: SamplingParams | None = None
        self.ends: list[SequenceEnd] = []
        self.events: list[tuple[str, int]] = []
        """What befell it, and when: nanoseconds since the epoch."""
        self.metadata = metadata
        self.hear_part_end: Callable[[Call], None] | None = None
        """Told of each of its parts that the core has done with."""
        self.on_end: Callable[[Call], None] | None = None
        """Of a part: told when all its sequences have ended."""
        self._trace_headers: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"Call({self.method!r}, {self.request_id!r}, {len(self.ends)} of {self.num_sequences} sequences ended)"

    @property
    def time_remaining_s(self) -> float | None:
        """Until its deadline; None: it has none."""
        return None if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)

    @property
    def num_output_tokens(self) -> int:
        """Of the sequences that have ended."""
        return sum(end.num_output_tokens for end in self.ends)

    @property
    def time_to_first_token_s(self) -> float | None:
        """Of the sequences that have ended."""
        heard_at = [end.first_token_heard_at for end in self.ends if end.first_token_heard_at is not None]
        return min(heard_at) - self.started_at if heard_at else None

    @property
    def trace_headers(self) -> dict[str, str] | None:
        """What the core is to know of the trace: those of our span, or else the caller's. None: there is no trace."""
        if self._trace_headers is None:
            found = {key: str(value) for key, value in self.metadata if key in _TRACE_HEADERS}
            self._trace_headers = found if "traceparent" in found else _NO_HEADERS
            self.metadata = ()  # Nobody else asks for it by now.
        return self._trace_headers or None

    def part(self) -> "Call":
        """One for a request of several that the call carries: under the same name, deadline and trace."""
        part = Call(self.method, self.metadata, self.model)
        part.deadline, part.key_name, part.trace_id = self.deadline, self.key_name, self.trace_id
        part._trace_headers, part.on_end = self._trace_headers, self.hear_part_end
        return part

    def note_end(self, end: SequenceEnd) -> None:
        """One sequence has ended."""
        self.ends.append(end)
        if self.on_end is not None and len(self.ends) == self.num_sequences:
            self.on_end(self)

    def trace(self, trace_id: str, headers: Mapping[str, str]) -> None:
        """It has a span of ours."""
        self.trace_id, self._trace_headers = trace_id, dict(headers)

    def read(self, message: object) -> None:
        """Whatever the API, the names in its request, which may turn out to be wrong."""
        self.request_id = _name(message, "request_id", "id") or self.request_id
        self.model = _name(message, "model", "model_name") or self.model

    def submit(self, requests: Sequence[EngineCoreRequest]) -> None:
        """These sequences of one prompt have gone to a core."""
        first = requests[0]
        self.request_id = first.external_req_id or self.request_id
        self.num_prompt_tokens += first.num_prompt_tokens
        self.num_sequences += len(requests)
        self.sampling_params = first.sampling_params
        if first.lora_request is not None:
            self.model = first.lora_request.lora_name

    def note(self, event: str) -> None:
        """Something out of the ordinary befalls it now."""
        self.events.append((event, time.time_ns()))

    def names(self) -> Iterator[tuple[str, str]]:
        """What a log line says of it."""
        for name in ("request_id", "method", "model", "key_name", "trace_id"):
            if value := getattr(self, name):
                yield name, value


_current: ContextVar[Call | None] = ContextVar("call", default=None)


def current_call() -> Call | None:
    """The one on whose behalf this runs. None: nobody's."""
    return _current.get()


def part_for(message: object) -> Call:
    """A part of the current call, for one of the requests that it carries: to whoever counts tokens, one of its own."""
    call = current_call()
    part = Call("") if call is None else call.part()
    part.read(message)
    return part


def time_remaining_s() -> float | None:
    """That the current call has. None: it has no deadline, or there is no call."""
    call = current_call()
    return None if call is None else call.time_remaining_s


@contextmanager
def running(call: Call) -> Iterator[Call]:
    """What runs in the block, and the tasks that it starts, is on behalf of ``call``."""
    token = begin_running(call)
    try:
        yield call
    finally:
        end_running(token)


def begin_running(call: Call) -> "Token[Call | None]":
    """As ``running``, until ``end_running`` of what it returns: for a block that has a context manager already."""
    return _current.set(call)


def end_running(token: "Token[Call | None]") -> None:
    """What runs now is on behalf of whoever it was before."""
    _current.reset(token)


def _name(message: object, *fields: str) -> str:
    """The first of ``fields`` that is a name such as may stand in a line of the log; else empty."""
    for field in fields:
        value = getattr(message, field, None)
        if isinstance(value, str) and value.isprintable() and 0 < len(value.encode()) <= _MAX_NAME_BYTES:
            return value
    return ""
