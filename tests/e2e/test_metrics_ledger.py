"""Every number of /metrics against a ledger of its own: what clients saw, and what passed between gateway and core.

And every span against the same ledger.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import grpc
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from sluicegate.v1 import control_service_pb2
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.core.model.tiny_model import TINY, TinyModel
from tests.service.byte_model import EOS_TOKEN_ID, VOCAB_SIZE, write_byte_model
from tests.service.gateway_process import PythonProcess
from tests.service.metrics.scrape import Scrape, scrape_async
from tests.service.tapped_core import Cut, Passed, TappedCore
from tests.service.tracing.collector import Collector, attributes_of

NUM_REQUESTS = 110
NUM_AT_ONCE = 24
SERVICE = "/sluicegate.v1.InferenceService/"
STOP_STRINGS = ["e", "t", "A"]
SMALL_CORE = ["--kv-cache-memory=384KiB", "--max-num-seqs=16", "--max-num-batched-tokens=128"]
"""The KV cache has room for some 500 tokens, a fraction of what is asked for at once."""
Reason = pb.FinishReason


@dataclass
class Ledger:
    """What the clients of all calls saw."""

    codes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By method and status."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Of sequences."""
    token_ids: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """By request and index, of the sequences of which clients saw the end."""


class Server(NamedTuple):
    inference: InferenceServiceStub
    control: ControlServiceStub
    metrics_address: str
    core: TappedCore
    ledger: Ledger
    collector: Collector


@asynccontextmanager
async def serving(folder: Path, sockets: Path) -> AsyncIterator[Server]:
    """A gateway process and a core process, with a small random model of bytes, and the tap between them."""
    for name in ("model", "tmp"):
        (folder / name).mkdir()
    write_byte_model(folder / "model")
    TinyModel(replace(TINY, vocab_size=VOCAB_SIZE)).write_safetensors(folder / "model", eos_token_id=EOS_TOKEN_ID)
    handshake = f"ipc://{sockets}/gateway"
    arguments = ["gateway", f"{folder}/model", "--handshake-address", handshake]
    for kind in ("grpc", "admin", "metrics"):
        arguments += [f"--{kind}-address", "127.0.0.1:0"]
    async with (
        Collector() as collector,
        PythonProcess(
            *(folder / "tmp", "service", *arguments, "--otlp-traces-endpoint", collector.url),
            environment={"OTEL_BSP_SCHEDULE_DELAY": "100"},
        ) as gateway,
        TappedCore(handshake, sockets, f"{folder}/model", *SMALL_CORE) as core,
        grpc.aio.insecure_channel(await gateway.until_ready()) as public,
        grpc.aio.insecure_channel(await gateway.admin_address()) as admin,
    ):
        metrics_address = (await gateway.until_logged(r"metrics on http://(\S+)/metrics")).group(1)
        stubs = InferenceServiceStub(public), ControlServiceStub(admin)
        yield Server(*stubs, metrics_address, core, Ledger(), collector)


class Caller:
    """Makes one request, in one of many ways, and notes what came of it."""

    def __init__(self, server: Server, number: int) -> None:
        self._server = server
        self._random = random.Random(number)
        self._name = f"r{number}"

    def _request(self, **params: Any) -> pb.GenerateRequest:
        """Of a text that some others begin with, too."""
        text = f"{self._random.choice(['Once upon a time there was', 'Dear Sir,'])} {self._name} {'and so on ' * 3}"
        params = {"temperature": 1, "seed": self._random.randrange(1000), "max_tokens": 20, **params}
        return pb.GenerateRequest(
            request_id=self._name, text=text, sampling_params=params, output_options={"token_ids": True}
        )

    async def plain(self) -> None:
        await self._generate(self._request(max_tokens=self._random.randint(1, 60)))

    async def several(self) -> None:
        await self._generate(self._request(n=3, logprobs=2))

    async def scored(self) -> None:
        await self._generate(self._request(prompt_logprobs=1))

    async def stopped(self) -> None:
        """By a string, if the model says one of them."""
        stops = {ord(text) for text in STOP_STRINGS}
        self._server.core.cuts[self._name] = Cut(lambda token_ids: not stops.isdisjoint(token_ids))
        await self._generate(self._request(stop=STOP_STRINGS, max_tokens=60))

    async def streamed(self) -> None:
        await self._read(self._stream(self._request(n=2)))
        self._note("GenerateStream", "OK")

    async def left(self) -> None:
        """The client leaves after some tokens."""
        num_tokens = self._random.randint(1, 10)
        self._server.core.cuts[self._name] = Cut(lambda token_ids: len(token_ids) >= num_tokens)
        stream = self._stream(self._request(ignore_eos=True, max_tokens=200))
        await self._read(stream, num_tokens)
        stream.cancel()
        self._note("GenerateStream", "CANCELLED", "abort")

    async def aborted(self) -> None:
        """An operator ends it; and while it lives, nobody else may have its name."""
        self._server.core.cuts[self._name] = Cut(lambda token_ids: len(token_ids) >= 5)
        stream = self._stream(self._request(ignore_eos=True, max_tokens=200))
        await self._read(stream, 5)
        await self._refused(self._server.inference.Generate(self._request()), "ALREADY_EXISTS")
        await self._server.control.Abort(control_service_pb2.AbortRequest(request_ids=[self._name]))
        self._server.ledger.codes["/sluicegate.v1.ControlService/Abort", "OK"] += 1
        await self._read(stream)
        self._note("GenerateStream", "OK")

    async def late(self) -> None:
        """Nothing comes before the deadline; on a busy machine that may be seen before, and the request refused."""
        self._server.core.cuts[self._name] = Cut(lambda _: True)
        call = self._server.inference.Generate(self._request(), timeout=1)
        await self._refused(call, "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
        if self._name in self._server.core.calls():
            self._server.ledger.reasons["abort"] += 1

    async def broken(self) -> None:
        """The engine gives a token that is none."""
        self._server.core.cuts[self._name] = Cut(lambda token_ids: len(token_ids) >= 3, breaks=True)
        await self._refused(self._server.inference.Generate(self._request(ignore_eos=True)), "INTERNAL")
        self._server.ledger.reasons["error"] += 1

    async def wrong(self) -> None:
        await self._refused(self._server.inference.Generate(self._request(temperature=-1)), "INVALID_ARGUMENT")

    async def too_much(self) -> None:
        await self._refused(self._server.inference.Generate(self._request(n=10_000)), "RESOURCE_EXHAUSTED")

    async def tokenized(self) -> None:
        await self._server.inference.Tokenize(pb.TokenizeRequest(text="hello"))
        self._note("Tokenize", "OK")

    def _stream(self, request: pb.GenerateRequest) -> Any:
        return self._server.inference.GenerateStream(request)

    async def _generate(self, request: pb.GenerateRequest) -> None:
        response = await self._server.inference.Generate(request)
        for index, output in enumerate(response.outputs):
            self._note_sequence(index, output.finish_reason, list(output.token_ids))
        self._note("Generate", "OK")

    async def _read(self, stream: Any, num_tokens: int | None = None) -> None:
        """Up to so many tokens, or to the end."""
        tokens: dict[int, list[int]] = {}
        while num_tokens is None or sum(map(len, tokens.values())) < num_tokens:
            event = await stream.read()
            if event is grpc.aio.EOF:
                return
            tokens.setdefault(event.delta.index, []).extend(event.delta.token_ids)
            if event.HasField("finished"):
                self._note_sequence(event.finished.index, event.finished.finish_reason, None)

    async def _refused(self, call: Awaitable[Any], *codes: str) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
        assert raised.value.code().name in codes, raised.value
        self._note("Generate", raised.value.code().name)

    def _note(self, method: str, code: str, *reasons: str) -> None:
        self._server.ledger.codes[SERVICE + method, code] += 1
        self._server.ledger.reasons.update(reasons)

    def _note_sequence(self, index: int, reason: Any, token_ids: list[int] | None) -> None:
        self._server.ledger.reasons[Reason.Name(reason).removeprefix("FINISH_REASON_").lower()] += 1
        if token_ids is not None:
            self._server.ledger.token_ids[self._name, index] = token_ids


WAYS: list[Callable[[Caller], Awaitable[None]]] = [
    *(Caller.plain, Caller.several, Caller.scored, Caller.stopped, Caller.streamed, Caller.left),
    *(Caller.aborted, Caller.late, Caller.broken, Caller.wrong, Caller.too_much),
]


async def make_all_requests(server: Server) -> None:
    room = asyncio.Semaphore(NUM_AT_ONCE)

    async def make(number: int) -> None:
        async with room:
            await WAYS[number % len(WAYS)](Caller(server, number))

    await asyncio.gather(*(make(number) for number in range(NUM_REQUESTS)))
    await Caller(server, NUM_REQUESTS).tokenized()


def num_streams(answer: Scrape) -> float:
    return sum(
        sample.value
        for family in answer.families
        if family.name == "sluicegate:streams_open"
        for sample in family.samples
    )


async def until_idle(server: Server) -> Scrape:
    """The first answer in which nothing runs any more, within a minute."""
    async with asyncio.timeout(60):
        while True:
            answer = await scrape_async(server.metrics_address)
            gauges = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
            in_cores = sum(answer.engine(gauge, "model") for gauge in gauges)
            if not in_cores + answer.value("sluicegate:live_requests") + num_streams(answer):
                return answer


def histograms(core: TappedCore) -> dict[str, tuple[int, float]]:
    """Name, how many, and their sum, of what passed."""
    all_of_them, calls = [*core.passed.values()], core.calls().values()
    begun = [p for p in all_of_them if p.token_times]
    longer = [p for p in begun if len(p.token_ids) > 1]
    prefilled = [p.prefill for p in all_of_them if p.prefill is not None]
    scheduled = [p for p in begun if p.scheduled_at is not None]

    def between(passed: Iterable[Passed], start: Callable[[Passed], Any], end: Callable[[Passed], Any]) -> list[float]:
        return [end(p) - start(p) for p in passed]

    def first(p: Passed) -> float:
        return p.token_times[0]

    def last(p: Passed) -> float:
        return p.token_times[-1]

    values: dict[str, list[float]] = {
        "request_prompt_tokens": [p.request.num_prompt_tokens for p in all_of_them],
        "request_generation_tokens": [len(p.token_ids) for p in all_of_them],
        "request_max_num_generation_tokens": [max(len(p.token_ids) for p in call) for call in calls],
        "request_params_max_tokens": [
            p.request.sampling_params.max_tokens or 0 for p in all_of_them if p.request.sampling_params
        ],
        "request_params_n": [len(call) for call in calls],
        "request_prefill_kv_computed_tokens": [p.num_prompt_tokens - p.num_cached_tokens for p in prefilled],
        "iteration_tokens_total": [*core.tokens_per_step],
        "inter_token_latency_seconds": [
            later - earlier for p in begun for earlier, later in zip(p.token_times, p.token_times[1:], strict=False)
        ],
        "request_time_per_output_token_seconds": [(last(p) - first(p)) / (len(p.token_ids) - 1) for p in longer],
        "request_queue_time_seconds": between(scheduled, lambda p: p.queued_at, lambda p: p.scheduled_at),
        "request_prefill_time_seconds": between(scheduled, lambda p: p.scheduled_at, first),
        "request_decode_time_seconds": between(begun, first, last),
        "request_inference_time_seconds": between(scheduled, lambda p: p.scheduled_at, last),
    }
    return {name: (len(found), sum(found)) for name, found in values.items()}


def counters(core: TappedCore) -> dict[str, float]:
    passed = core.passed.values()
    prefills = [p.prefill for p in passed if p.prefill is not None]
    return {
        "prompt_tokens": sum(prefill.num_prompt_tokens for prefill in prefills),
        "prompt_tokens_cached": sum(prefill.num_cached_tokens for prefill in prefills),
        "generation_tokens": sum(len(p.token_ids) for p in passed),
        "num_preemptions": sum(p.num_preemptions for p in passed),
        "prefix_cache_queries": core.lookups["queries"],
        "prefix_cache_hits": core.lookups["hits"],
        "corrupted_requests": 0,
        "spec_decode_num_drafts": 0,
    }


def parts_of(core: TappedCore) -> list[tuple[str, str, float]]:
    """Name, sequence, and seconds of what each sequence did, as far as it came."""
    found = []
    for core_id, passed in core.passed.items():
        if not passed.token_times:
            continue
        assert passed.queued_at is not None
        assert passed.scheduled_at is not None
        found.append(("queue", core_id, passed.scheduled_at - passed.queued_at))
        found.append(("prefill", core_id, passed.token_times[0] - passed.scheduled_at))
        if len(passed.token_ids) > 1:
            found.append(("decode", core_id, passed.token_times[-1] - passed.token_times[0]))
    return found


class Outcome(NamedTuple):
    """Of all requests, once nothing ran any more."""

    answer: Scrape
    core: TappedCore
    ledger: Ledger
    spans: list[Span]

    def shown(self, name: str, **labels: str) -> float:
        """The value of ``vllm:NAME``."""
        return self.answer.engine(name, "model", **labels)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    async def run(sockets: Path) -> Outcome:
        async with serving(tmp_path_factory.mktemp("ledger"), sockets) as server:
            await make_all_requests(server)
            answer = await until_idle(server)
            await server.collector.spans(sum(server.ledger.codes.values()) + len(parts_of(server.core)))
            return Outcome(answer, server.core, server.ledger, server.collector.received)

    with TemporaryDirectory(prefix="sg") as folder:
        return asyncio.run(run(Path(folder)))


def test_tokens(outcome: Outcome) -> None:
    """Tokens, lookups and preemptions add up to what the core said."""
    counted = counters(outcome.core)
    assert {name: outcome.shown(f"{name}_total") for name in counted} == counted
    assert counted["num_preemptions"] > 0, "the KV cache was too large for this test"
    assert counted["prefix_cache_hits"] > 0
    prefills = [passed.prefill for passed in outcome.core.passed.values() if passed.prefill is not None]
    for source, count in {
        "local_compute": sum(prefill.num_computed_tokens for prefill in prefills),
        "local_cache_hit": sum(prefill.num_local_cached_tokens for prefill in prefills),
    }.items():
        assert outcome.shown("prompt_tokens_by_source_total", source=source) == count


def test_histograms(outcome: Outcome) -> None:
    """How many values each has, and their sum: sizes of requests, and times by the core's clock."""
    for name, (count, total) in histograms(outcome.core).items():
        assert outcome.shown(f"{name}_count") == outcome.shown(f"{name}_bucket", le="+Inf") == count, name
        assert outcome.shown(f"{name}_sum") == pytest.approx(total, abs=1e-6), name
    num_begun = sum(bool(passed.token_times) for passed in outcome.core.passed.values())
    assert outcome.shown("time_to_first_token_seconds_count") == num_begun
    assert outcome.shown("e2e_request_latency_seconds_count") == len(outcome.core.passed)


def test_ends(outcome: Outcome) -> None:
    """Each sequence ends once, for the reason that its client was told, or that its client was."""
    reasons = outcome.ledger.reasons
    for reason in ("stop", "length", "abort", "error", "repetition"):
        assert outcome.shown("request_success_total", finished_reason=reason) == reasons[reason], reason
    assert all(reasons[reason] for reason in ("stop", "length", "abort", "error"))
    assert sum(reasons.values()) == len(outcome.core.passed)


def folded(codes: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """A deadline counted as a cancellation."""
    found: Counter[tuple[str, str]] = Counter()
    for (method, code), count in codes.items():
        found[method, "CANCELLED" if code == "DEADLINE_EXCEEDED" else code] += int(count)
    return dict(found)


def test_calls(outcome: Outcome) -> None:
    """Calls count by method and status as clients saw them, and each has a duration."""
    calls = {
        (sample.labels["method"], sample.labels["code"]): sample.value
        for family in outcome.answer.families
        if family.name == "sluicegate:rpcs"
        for sample in family.samples
    }
    # A server cannot always tell a client that has run out of time from one that has gone.
    assert folded(calls) == folded(outcome.ledger.codes)
    for method in {method for method, _ in calls}:
        count = sum(count for (of, _), count in calls.items() if of == method)
        assert outcome.answer.value("sluicegate:rpc_duration_seconds_count", method=method) == count


def test_clients_got_what_was_counted(outcome: Outcome) -> None:
    """The tokens of the ledger are those that clients have, but for the ones after a stop."""
    calls = outcome.core.calls()
    for (name, index), token_ids in outcome.ledger.token_ids.items():
        sequences = sorted(calls[name], key=lambda passed: passed.request.request_id)
        assert sequences[index].token_ids == token_ids, name


def test_nothing_is_left(outcome: Outcome) -> None:
    """After all of it every gauge is back where it was."""
    for name in ("live_requests", "live_sequences", "held_request_bytes"):
        assert outcome.answer.value(f"sluicegate:{name}") == 0, name
    assert num_streams(outcome.answer) == 0
    for reason in ("capacity", "deferred"):
        assert outcome.shown("num_requests_waiting_by_reason", reason=reason) == 0


def test_spans(outcome: Outcome) -> None:
    """Each call has a span, with its status; each sequence has its parts under it, as long as the core says."""
    calls = [span for span in outcome.spans if span.kind == Span.SPAN_KIND_SERVER]
    said = {span.span_id: attributes_of(span.attributes) for span in calls}
    codes = Counter((f"/{span['rpc.method']}", span["rpc.response.status_code"]) for span in said.values())
    assert folded(codes) == folded(outcome.ledger.codes)
    parts = {
        (span.name, attributes_of(span.attributes)["sluicegate.sequence.id"]): span
        for span in outcome.spans
        if span.kind != Span.SPAN_KIND_SERVER
    }
    for name, core_id, seconds in parts_of(outcome.core):
        span = parts.pop((name, core_id))
        assert (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9 == pytest.approx(seconds, abs=1e-5)
        call = said[span.parent_span_id]
        assert call["gen_ai.request.id"] == outcome.core.passed[core_id].request.external_req_id
    assert parts == {}
    num_tokens = sum(len(passed.token_ids) for passed in outcome.core.passed.values())
    assert sum(span.get("gen_ai.usage.output_tokens", 0) for span in said.values()) == num_tokens
