"""/metrics of a gateway with a scripted core: what is there, under which names, and what it says."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from core.wire.messages import EngineCoreOutput, FinishReason, PrefillStats
from core.wire.stats import PrefixCacheStats, SchedulerStats, SpecDecodingStats
from service.config import GatewayConfig
from service.server import GatewayServer
from service.services import ROUTER_PROBES
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.fake_core import FakeCore
from tests.service.metrics.scrape import scrape_async

GENERATE_STREAM = "/sluicegate.v1.InferenceService/GenerateStream"
HISTOGRAMS = [
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_max_num_generation_tokens",
    "request_params_max_tokens",
    "request_params_n",
    "iteration_tokens_total",
    "request_prefill_kv_computed_tokens",
]


@pytest.fixture
def gateway_config(gateway_config: GatewayConfig) -> GatewayConfig:
    listen = dataclasses.replace(gateway_config.listen, metrics_address="127.0.0.1:0")
    return dataclasses.replace(gateway_config, listen=listen)


@pytest.fixture
async def other_gateway(gateway_config: GatewayConfig) -> AsyncIterator[GatewayServer]:
    """One that has no core yet."""
    address = gateway_config.core.handshake_address + "2"
    server = GatewayServer(
        dataclasses.replace(gateway_config, core=dataclasses.replace(gateway_config.core, handshake_address=address))
    )
    try:
        yield server
    finally:
        await server.stop()


async def streams_of(inference: InferenceServiceStub, core: FakeCore, count: int) -> "tuple[list[Stream], list[str]]":
    """Streams whose first token has come, and their ids in the core, in the same order."""
    params = {"max_tokens": 5, "ignore_eos": True}
    requests = [pb.GenerateRequest(request_id=str(i), text="hi", sampling_params=params) for i in range(count)]
    streams = [inference.GenerateStream(request) for request in requests]
    ids = sorted([(await core.receive_add()).request_id for _ in streams])
    core.emit(*(EngineCoreOutput(i, [65], prefill_stats=PrefillStats(2, 2)) for i in ids))
    for stream in streams:
        assert (await stream.read()).HasField("started")
        assert (await stream.read()).delta.text == "A"
    return streams, ids


Stream = grpc.aio.UnaryStreamCall[pb.GenerateRequest, pb.GenerateStreamResponse]


async def test_names(gateway: GatewayServer) -> None:
    """The names, types and labels are vLLM's, in the oldest text format, whatever the Accept header asks."""
    answer = await scrape_async(gateway.metrics_address)
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    types = {family.name: family.type for family in answer.families}
    assert {f"vllm:{name}" for name in HISTOGRAMS} == {
        name for name, kind in types.items() if kind == "histogram" and name.startswith("vllm:")
    }
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert (types[f"vllm:{name}"], answer.engine(name)) == ("gauge", 0)
    for name in ("prompt_tokens", "generation_tokens", "num_preemptions", "prefix_cache_hits", "prefix_cache_queries"):
        assert (types[f"vllm:{name}"], answer.engine(f"{name}_total")) == ("counter", 0)
    assert answer.engine("cache_config_info", block_size="16", num_gpu_blocks="101") == 1
    assert answer.engine("request_prompt_tokens_bucket", le="1000.0") == 0
    assert 'le="2000.0"' not in answer.text
    assert {"process_resident_memory_bytes", "python_info", "python_gc_collections_total"} <= answer.names


async def test_scheduler(gateway: GatewayServer, inference: InferenceServiceStub, core: FakeCore) -> None:
    """The gauges are what the core last said; its counts of the prefix cache add up."""
    streams, (request_id,) = await streams_of(inference, core, 1)
    cache = PrefixCacheStats(True, queries=10, hits=4, preempted_requests=1, preempted_queries=7, preempted_hits=3)
    for num_running in (2, 1):
        core.emit(stats=SchedulerStats(num_running, 2, 3, kv_cache_usage=0.5, prefix_cache_stats=cache))
    core.emit_token(request_id, 66)
    assert (await streams[0].read()).delta.text == "B"
    answer = await scrape_async(gateway.metrics_address)
    assert (answer.engine("num_requests_running"), answer.engine("num_requests_waiting")) == (1, 5)
    assert answer.engine("num_requests_waiting_by_reason", reason="capacity") == 2
    assert answer.engine("num_requests_waiting_by_reason", reason="deferred") == 3
    assert answer.engine("kv_cache_usage_perc") == 0.5
    assert (answer.engine("prefix_cache_queries_total"), answer.engine("prefix_cache_hits_total")) == (20, 8)
    for name, count in (("preempted_queries", 14), ("preempted_hits", 6), ("resets", 2)):
        assert answer.value(f"sluicegate:prefix_cache_{name}_total", model_name="bytes", engine="0") == count


async def test_drafts(gateway: GatewayServer, inference: InferenceServiceStub, core: FakeCore) -> None:
    """What the core says of its drafts adds up, by position too; a step without any says nothing."""
    streams, (request_id,) = await streams_of(inference, core, 1)
    for drafts in (SpecDecodingStats(3, 2, 6, 3, [2, 1, 0]), None, SpecDecodingStats(3, 1, 2, 2, [1, 1, 0])):
        core.emit(stats=SchedulerStats(spec_decoding_stats=drafts))
    core.emit_token(request_id, 66)
    assert (await streams[0].read()).delta.text == "B"
    answer = await scrape_async(gateway.metrics_address)
    totals = [answer.engine(f"spec_decode_num_{name}_total") for name in ("drafts", "draft_tokens", "accepted_tokens")]
    assert totals == [3, 8, 5]
    by_position = "spec_decode_num_accepted_tokens_per_pos_total"
    assert [answer.engine(by_position, position=str(i)) for i in range(3)] == [3, 2, 0]


async def test_cancelled_requests_are_counted(
    gateway: GatewayServer, inference: InferenceServiceStub, core: FakeCore
) -> None:
    """A client that leaves ends its request as aborted, with the tokens that it was given."""
    streams, ids = await streams_of(inference, core, 5)
    for stream in streams:
        stream.cancel()
    aborted = [await core.receive_abort() for _ in streams]
    assert sorted(ids) == sorted(request_id for (request_id,) in aborted)
    answer = await scrape_async(gateway.metrics_address)
    assert answer.engine("request_success_total", finished_reason="abort") == 5
    assert answer.engine("request_success_total", finished_reason="stop") == 0
    assert answer.engine("generation_tokens_total") == answer.engine("request_generation_tokens_sum") == 5
    assert answer.engine("prompt_tokens_total") == answer.engine("request_prompt_tokens_sum") == 10
    assert answer.engine("prompt_tokens_by_source_total", source="local_compute") == 10
    assert answer.value("sluicegate:live_requests") == answer.value("sluicegate:live_sequences") == 0


async def test_ends_by_reason(gateway: GatewayServer, inference: InferenceServiceStub, core: FakeCore) -> None:
    """A stop string ends a request as stopped, what the gateway cannot use as an error: as the client is told."""
    stopped = inference.Generate(pb.GenerateRequest(text="hi", sampling_params={"stop": ["B"]}))
    stopped_id = (await core.receive_add()).request_id
    failed = inference.Generate(pb.GenerateRequest(text="hi"))
    failed_id = (await core.receive_add()).request_id
    core.emit(EngineCoreOutput(stopped_id, [65, 66, 67]), EngineCoreOutput(failed_id, [100_000]))
    assert (await stopped).outputs[0].finish_reason == pb.FINISH_REASON_STOP
    with pytest.raises(grpc.aio.AioRpcError):
        await failed
    answer = await scrape_async(gateway.metrics_address)
    reasons = ("stop", "length", "abort", "error", "repetition")
    counts = [answer.engine("request_success_total", finished_reason=reason) for reason in reasons]
    assert counts == [1, 0, 0, 1, 0]


async def test_lost_core(gateway: GatewayServer, inference: InferenceServiceStub, core: FakeCore) -> None:
    """When the core dies its requests end as errors, nothing runs any more, and the loss is counted."""
    streams, _ = await streams_of(inference, core, 2)
    core.emit(stats=SchedulerStats(num_running_reqs=2, kv_cache_usage=0.5))
    core.report_death()
    for stream in streams:
        with pytest.raises(grpc.aio.AioRpcError):
            await stream.read()
    answer = await scrape_async(gateway.metrics_address)
    assert answer.engine("request_success_total", finished_reason="error") == 2
    assert (answer.engine("num_requests_running"), answer.engine("kv_cache_usage_perc")) == (0, 0)
    assert answer.value("sluicegate:cores_lost_total") == 1


async def test_calls(gateway: GatewayServer, inference: InferenceServiceStub, core: FakeCore) -> None:
    """Calls count by method and status; streams that run are shown; a method that is not there makes no series.

    What a router asks every server to find out which contract it speaks is not counted at all.
    """
    streams, (request_id, _) = await streams_of(inference, core, 2)
    answer = await scrape_async(gateway.metrics_address)
    assert answer.value("sluicegate:streams_open", method=GENERATE_STREAM) == 2
    core.emit_token(request_id, 66, FinishReason.LENGTH)
    events = [await streams[0].read(), await streams[0].read()]
    assert [event.WhichOneof("event") for event in events] == ["delta", "finished"]
    assert await streams[0].read() is grpc.aio.EOF
    streams[1].cancel()
    await core.receive_abort()
    with pytest.raises(grpc.aio.AioRpcError):
        await inference.Tokenize(pb.TokenizeRequest())
    async with grpc.aio.insecure_channel(gateway.grpc_addresses[0]) as channel:
        await HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary("/no.such/Method")(b"")
        for probe in ROUTER_PROBES:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(probe)(b"")
    answer = await scrape_async(gateway.metrics_address)
    calls = {
        (sample.labels["method"].rpartition("/")[2], sample.labels["code"]): sample.value
        for family in answer.families
        if family.name == "sluicegate:rpcs"
        for sample in family.samples
    }
    assert calls == {
        ("GenerateStream", "OK"): 1,
        ("GenerateStream", "CANCELLED"): 1,
        ("Tokenize", "INVALID_ARGUMENT"): 1,
        ("Check", "OK"): 1,
        ("unknown", "UNIMPLEMENTED"): 1,
    }
    assert answer.value("sluicegate:streams_open", method=GENERATE_STREAM) == 0
    assert answer.value("sluicegate:rpc_duration_seconds_count", method=GENERATE_STREAM) == 2


async def test_before_there_is_a_core(other_gateway: GatewayServer) -> None:
    """While the model loads, the process is there to see and the engine is not: no zeros stand for it."""
    start = asyncio.ensure_future(other_gateway.start())
    await other_gateway.listening.wait()
    names = (await scrape_async(other_gateway.metrics_address)).names
    assert "process_resident_memory_bytes" in names
    assert not [name for name in names if name.startswith("vllm:")]
    start.cancel()
