"""Spans of a gateway with a scripted core, as a real collector gets them."""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import msgspec
import numpy as np
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from bench.null_core import __name__ as null_core
from core.wire.messages import (
    EngineCoreEvent,
    EngineCoreOutput,
    EngineCoreOutputs,
    EventType,
    FinishReason,
    PrefillStats,
)
from core.wire.tensor import Tensor
from service.config import GatewayConfig, TracingConfig
from service.models import ModelFiles
from service.server import GatewayServer
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.errors_of_calls import error_of
from tests.service.fake_core import FakeCore
from tests.service.gateway_process import PythonProcess
from tests.service.metrics.scrape import scrape_async
from tests.service.tracing.collector import Collector, attributes_of

GENERATE = "sluicegate.v1.InferenceService/Generate"
TRACE_ID, SPAN_ID = "a" * 32, "b" * 16


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with Collector() as started:
        yield started


@pytest.fixture
async def gateway_config(
    gateway_config: GatewayConfig, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> GatewayConfig:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    listen = dataclasses.replace(gateway_config.listen, metrics_address="127.0.0.1:0")
    return dataclasses.replace(gateway_config, listen=listen, tracing=TracingConfig(collector.url))


def parent(sampled: bool = True) -> tuple[tuple[str, str], ...]:
    """What a caller that has a span says of it."""
    return (("traceparent", f"00-{TRACE_ID}-{SPAN_ID}-0{int(sampled)}"), ("tracestate", "vendor=1"))


def first_output(core_id: str, now: float) -> EngineCoreOutput:
    """The request waited for 3 s, and its prefill took 2."""
    events = [EngineCoreEvent(EventType.QUEUED, now - 5), EngineCoreEvent(EventType.SCHEDULED, now - 2)]
    return EngineCoreOutput(core_id, [65], events=events, prefill_stats=PrefillStats(2, 1, 1))


async def generate(inference: InferenceServiceStub, core: FakeCore, now: float, **params: object) -> None:
    """One request that the core says to have had the first token of at ``now``, the second a second later."""
    request = pb.GenerateRequest(request_id="r1", text="a secret", sampling_params=params)
    answer = inference.Generate(request, metadata=parent())
    ids = [(await core.receive_add()).request_id for _ in range(int(str(params.get("n", 1))))]
    core.send(EngineCoreOutputs(outputs=[first_output(i, now) for i in ids], timestamp=now))
    last = [EngineCoreOutput(i, [66], finish_reason=FinishReason.LENGTH) for i in ids]
    core.send(EngineCoreOutputs(outputs=last, timestamp=now + 1))
    await answer


def seconds(span: Span) -> float:
    return round((span.end_time_unix_nano - span.start_time_unix_nano) / 1e9, 3)


async def test_a_request(inference: InferenceServiceStub, core: FakeCore, collector: Collector) -> None:
    """A span of the call, under the caller's; under it queue, prefill and decode, as long as the core says."""
    await generate(inference, core, time.monotonic(), temperature=0.5, max_tokens=2)
    spans = await collector.spans(4)
    call = spans.pop(GENERATE)
    assert (call.trace_id.hex(), call.parent_span_id.hex(), call.kind) == (TRACE_ID, SPAN_ID, Span.SPAN_KIND_SERVER)
    assert call.trace_state == "vendor=1"
    assert {span.parent_span_id for span in spans.values()} == {call.span_id}
    assert {name: seconds(span) for name, span in spans.items()} == {"queue": 3, "prefill": 2, "decode": 1}
    said = attributes_of(call.attributes)
    assert (
        said.items()
        >= {
            "rpc.system.name": "grpc",
            "rpc.method": GENERATE,
            "rpc.response.status_code": "OK",
            "gen_ai.request.id": "r1",
            "gen_ai.request.model": "bytes",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.max_tokens": 2,
            "gen_ai.request.n": 1,
            "gen_ai.usage.input_tokens": 8,
            "gen_ai.usage.completion_tokens": 2,
            "gen_ai.usage.cache_read.input_tokens": 1,
            "gen_ai.response.finish_reasons": ["length"],
            "gen_ai.operation.name": "text_completion",
        }.items()
    )
    assert said["gen_ai.latency.time_in_queue"] == pytest.approx(3)
    assert said["gen_ai.latency.time_in_model_inference"] == pytest.approx(3)
    assert 0 < said["gen_ai.latency.time_to_first_token"] < said["gen_ai.latency.e2e"]
    assert "secret" not in str([call, *spans.values()])
    assert call.status.code == Status.STATUS_CODE_UNSET


async def test_a_core_of_another_machine(inference: InferenceServiceStub, core: FakeCore, collector: Collector) -> None:
    """Its clock is another; its spans stand where they belong all the same, within what its messages take."""
    await generate(inference, core, 12_345_678.0)
    spans = await collector.spans(4)
    call, decode = spans[GENERATE], spans["decode"]
    assert call.start_time_unix_nano <= decode.start_time_unix_nano <= call.end_time_unix_nano
    assert seconds(spans["queue"]) == 3


async def test_the_core_is_told(inference: InferenceServiceStub, core: FakeCore, collector: Collector) -> None:
    """A core that makes spans of its own puts them under ours."""
    answer = inference.Generate(pb.GenerateRequest(text="hi"), metadata=parent())
    request = await core.receive_add()
    core.emit_token(request.request_id, 65, FinishReason.LENGTH)
    await answer
    call = (await collector.spans(1))[GENERATE]
    assert request.trace_headers == {
        "traceparent": f"00-{TRACE_ID}-{call.span_id.hex()}-01",
        "tracestate": "vendor=1",
    }


async def test_not_sampled(inference: InferenceServiceStub, core: FakeCore, collector: Collector) -> None:
    """A caller that does not sample gets no spans, and the core is told of its trace as it came."""
    answer = inference.Generate(pb.GenerateRequest(text="hi"), metadata=parent(sampled=False))
    request = await core.receive_add()
    assert request.trace_headers == dict(parent(sampled=False))
    core.emit_token(request.request_id, 65, FinishReason.LENGTH)
    await answer
    await generate(inference, core, time.monotonic())
    assert (await collector.spans(4))[GENERATE].trace_id.hex() == TRACE_ID


async def test_sequences(inference: InferenceServiceStub, core: FakeCore, collector: Collector) -> None:
    """Each sequence of a request has its own spans, by its name in the core."""
    await generate(inference, core, time.monotonic(), n=2)
    spans = await collector.spans(7)
    assert attributes_of(spans[GENERATE].attributes)["gen_ai.usage.num_sequences"] == 2
    assert "_r1-" in attributes_of(spans["decode"].attributes)["sluicegate.sequence.id"]


async def test_a_stream_of_requests(inference: InferenceServiceStub, core: FakeCore, collector: Collector) -> None:
    """Each request of a multiplexed stream has a span under the stream's, and its own parts under that."""
    stream = inference.GenerateMultiplexed()
    for name in ("r1", "r2"):
        await stream.write(pb.MultiplexedRequest(generate={"request_id": name, "text": "hi"}))
        core_id, now = (await core.receive_add()).request_id, time.monotonic()
        last = msgspec.structs.replace(first_output(core_id, now), finish_reason=FinishReason.LENGTH)
        core.send(EngineCoreOutputs(outputs=[last], timestamp=now))
    await stream.done_writing()
    assert [response async for response in stream]
    spans = await collector.spans(7)
    requests = [span for span in collector.received if span.name == "request"]
    assert [attributes_of(span.attributes)["gen_ai.request.id"] for span in requests] == ["r1", "r2"]
    call = spans["sluicegate.v1.InferenceService/GenerateMultiplexed"]
    assert {span.parent_span_id for span in requests} == {call.span_id}
    parents = {span.parent_span_id for span in collector.received if span.name == "prefill"}
    assert parents == {span.span_id for span in requests}


async def test_an_embedding(inference: InferenceServiceStub, core: FakeCore, collector: Collector) -> None:
    """It waits and is computed; nothing is decoded."""
    answer = inference.Embed(pb.EmbedRequest(request_id="e1", text="hi"))
    core.answer(await core.receive_call(), ["embed"])
    core_id, now = (await core.receive_add()).request_id, time.monotonic()
    events = first_output(core_id, now).events
    vector = Tensor(np.array([0.5, 0.25], np.float32))
    output = EngineCoreOutput(core_id, [], pooling_output=vector, events=events, finish_reason=FinishReason.STOP)
    core.send(EngineCoreOutputs(outputs=[output], timestamp=now))
    await answer
    spans = await collector.spans(3)
    call = attributes_of(spans.pop("sluicegate.v1.InferenceService/Embed").attributes)
    assert {name: seconds(span) for name, span in spans.items()} == {"queue": 3, "prefill": 2}
    assert (call["gen_ai.operation.name"], call["gen_ai.usage.input_tokens"]) == ("embeddings", 2)


async def test_errors(inference: InferenceServiceStub, core: FakeCore, collector: Collector) -> None:
    """Our errors are errors of the span, the caller's are not; what the client is told of them is not in it."""
    assert (await error_of(inference.Generate(pb.GenerateRequest(text="hi", model="secret")))).code.name == "NOT_FOUND"
    failing = inference.Generate(pb.GenerateRequest(text="hi"))
    core.emit(EngineCoreOutput((await core.receive_add()).request_id, [100_000]))
    with pytest.raises(grpc.aio.AioRpcError):
        await failing
    await collector.spans(2)
    said = {attributes_of(span.attributes)["error.type"]: span for span in collector.received}
    assert said["NOT_FOUND"].status.code == Status.STATUS_CODE_UNSET
    assert said["INTERNAL"].status.code == Status.STATUS_CODE_ERROR
    assert "secret" not in str(said)


async def test_health_checks(
    inference: InferenceServiceStub, core: FakeCore, collector: Collector, channel: grpc.aio.Channel
) -> None:
    """What machines ask all the time has no spans."""
    await HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    await generate(inference, core, time.monotonic())
    assert {*await collector.spans(4)} == {GENERATE, "queue", "prefill", "decode"}


async def test_spans_are_counted(
    gateway: GatewayServer, inference: InferenceServiceStub, core: FakeCore, collector: Collector
) -> None:
    """Those that a collector took."""
    await generate(inference, core, time.monotonic())
    await collector.spans(4)
    async with asyncio.timeout(60):
        while (await scrape_async(gateway.metrics_address)).value("sluicegate:spans_total", result="exported") < 4:
            pass


async def test_no_collector(
    gateway: GatewayServer,
    inference: InferenceServiceStub,
    core: FakeCore,
    collector: Collector,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A collector that is gone holds nobody up: spans are dropped, the log says so once, and a stop does not wait."""
    await collector.stop()
    with caplog.at_level("INFO"):
        for _ in range(3):
            await generate(inference, core, time.monotonic())
        async with asyncio.timeout(60):
            await gateway.stop()
    said = [record.getMessage() for record in caplog.records if record.name.startswith(("opentelemetry", "service.tr"))]
    assert len(said) <= 1


async def test_a_process(byte_model: ModelFiles, tmp_path: Path, short_folder: Path, collector: Collector) -> None:
    """The whole way: flags of the command, variables of OpenTelemetry, a process of its own, a collector elsewhere."""
    handshake = f"ipc://{short_folder}/h"
    arguments = ["gateway", str(byte_model.path), "--handshake-address", handshake, "--grpc-address", "127.0.0.1:0"]
    arguments += ["--admin-address", "127.0.0.1:0", "--metrics-address", "off", "--otlp-traces-endpoint", collector.url]
    variables = {
        "OTEL_SERVICE_NAME": "edge",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=t",
        "OTEL_BSP_SCHEDULE_DELAY": "20",
    }
    process = PythonProcess(tmp_path, "service", *arguments, environment=variables)
    async with process, FakeCore() as core:
        await core.shake_hands(handshake)
        async with grpc.aio.insecure_channel(await process.until_ready()) as channel:
            await generate(InferenceServiceStub(channel), core, time.monotonic())
        spans = await collector.spans(4)
    assert {seconds(span) for name, span in spans.items() if name != GENERATE} == {3, 2, 1}
    assert collector.resource["service.name"] == "edge"
    assert collector.metadata["x-tenant"] == "t"


async def test_several_processes(
    byte_model: ModelFiles, tmp_path: Path, short_folder: Path, collector: Collector
) -> None:
    """Each process of a gateway sends the spans of its calls, the last ones when it ends."""
    handshake = ["--handshake-address", f"ipc://{short_folder}/h"]
    arguments = ["gateway", str(byte_model.path), *handshake, "--grpc-address", "127.0.0.1:0", "--gateway-workers", "2"]
    arguments += ["--admin-address", "127.0.0.1:0", "--metrics-address", "off", "--otlp-traces-endpoint", collector.url]
    gateway = PythonProcess(tmp_path, "service", *arguments)
    async with gateway, PythonProcess(tmp_path, null_core, *handshake):
        address = await gateway.until_ready()
        for _ in range(8):  # The kernel gives each connection to one of the processes.
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with grpc.aio.insecure_channel(address, options) as channel:
                await InferenceServiceStub(channel).Generate(
                    pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 2})
                )
        gateway.send_signal(15)
        assert await gateway.exit_code() == 0
    calls = [span for span in collector.received if span.name == GENERATE]
    assert len(calls) == 8
    assert sum(attributes_of(span.attributes)["gen_ai.usage.output_tokens"] for span in calls) == 16
