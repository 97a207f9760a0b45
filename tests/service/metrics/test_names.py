"""/metrics has all that vLLM has, under its names: what dashboards, autoscalers and routers look for."""

import asyncio
import dataclasses

import msgspec
import pytest

from core.wire.messages import EngineCoreOutputs
from core.wire.stats import PrefixCacheStats, SchedulerStats, SpecDecodingStats
from service.config import GatewayConfig
from service.server import GatewayServer
from sluicegate.v1 import control_service_pb2 as pb
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from tests.service.fake_core import READY, FakeCore
from tests.service.metrics.scrape import Scrape, scrape_async

ENGINE = {"model_name", "engine"}
GAUGES = {
    "num_requests_running": ENGINE,
    "num_requests_waiting": ENGINE,
    "num_requests_waiting_by_reason": {*ENGINE, "reason"},
    "kv_cache_usage_perc": ENGINE,
    "engine_sleep_state": {*ENGINE, "sleep_state"},
    "lora_requests_info": {"max_lora", "running_lora_adapters", "waiting_lora_adapters"},
    "cache_config_info": {*ENGINE, "block_size", "num_gpu_blocks"},
}
COUNTERS = {
    "prefix_cache_queries": ENGINE,
    "prefix_cache_hits": ENGINE,
    "external_prefix_cache_queries": ENGINE,
    "external_prefix_cache_hits": ENGINE,
    "mm_cache_queries": ENGINE,
    "mm_cache_hits": ENGINE,
    "num_preemptions": ENGINE,
    "prompt_tokens": ENGINE,
    "prompt_tokens_by_source": {*ENGINE, "source"},
    "prompt_tokens_cached": ENGINE,
    "generation_tokens": ENGINE,
    "request_success": {*ENGINE, "finished_reason"},
    "corrupted_requests": ENGINE,
    "spec_decode_num_drafts": ENGINE,
    "spec_decode_num_draft_tokens": ENGINE,
    "spec_decode_num_accepted_tokens": ENGINE,
    "spec_decode_num_accepted_tokens_per_pos": {*ENGINE, "position"},
    "estimated_flops_per_gpu": ENGINE,
    "estimated_read_bytes_per_gpu": ENGINE,
    "estimated_write_bytes_per_gpu": ENGINE,
}
FIRST_TOKEN = ".001 .005 .01 .02 .04 .06 .08 .1 .25 .5 .75 1 2.5 5 7.5 10 20 40 80 160 640 2560"
TOKEN = ".01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5 5 7.5 10 20 40 80"
REQUEST = ".3 .5 .8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680"
TOKENS = "1 2 5 10 20 50 100 200 500 1000"
BLOCK = ".001 .002 .005 .01 .02 .05 .1 .2 .5 1 2 5 10 20 30 60 120 300 600 1200 1800"
HISTOGRAMS = {
    "request_prompt_tokens": TOKENS,
    "request_generation_tokens": TOKENS,
    "request_max_num_generation_tokens": TOKENS,
    "request_params_max_tokens": TOKENS,
    "request_prefill_kv_computed_tokens": TOKENS,
    "iteration_tokens_total": "1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384",
    "request_params_n": "1 2 5 10 20",
    "time_to_first_token_seconds": FIRST_TOKEN,
    "inter_token_latency_seconds": TOKEN,
    "request_time_per_output_token_seconds": TOKEN,
    "e2e_request_latency_seconds": REQUEST,
    "request_queue_time_seconds": REQUEST,
    "request_inference_time_seconds": REQUEST,
    "request_prefill_time_seconds": REQUEST,
    "request_decode_time_seconds": REQUEST,
    "kv_block_lifetime_seconds": BLOCK,
    "kv_block_idle_before_evict_seconds": BLOCK,
    "kv_block_reuse_gap_seconds": BLOCK,
}
"""Up to max_model_len, which is 1024 here."""
EVICTION = {"lifetime_seconds": 3.0, "idle_seconds": 1.5, "reuse_gaps_seconds": [0.5, 0.25]}
WORK = {"num_flops_per_gpu": 1000, "num_read_bytes_per_gpu": 200, "num_write_bytes_per_gpu": 30}
STATS = SchedulerStats(
    connector_prefix_cache_stats=PrefixCacheStats(queries=7, hits=3),
    spec_decoding_stats=SpecDecodingStats(2, 1, 2, 1, [1, 0]),
    kv_cache_eviction_events=[EVICTION, "no event", {"idle_seconds": float("nan"), "reuse_gaps_seconds": 5}],
    perf_stats=WORK,
)


@pytest.fixture
def gateway_config(gateway_config: GatewayConfig) -> GatewayConfig:
    listen = dataclasses.replace(gateway_config.listen, metrics_address="127.0.0.1:0")
    return dataclasses.replace(gateway_config, listen=listen)


async def scrape_after(gateway: GatewayServer, control: ControlServiceStub, core: FakeCore) -> Scrape:
    """When the core has told of all that any core tells of. Its answer to a call comes behind it."""
    call = asyncio.ensure_future(control.PauseGeneration(pb.PauseGenerationRequest()))
    pause = await core.receive_call()
    for _ in range(2):
        core.send(EngineCoreOutputs(scheduler_stats=STATS))
    core.answer(pause)
    await call
    return await scrape_async(gateway.metrics_address)


@pytest.mark.parametrize("core", [msgspec.structs.replace(READY, max_loras=2)], indirect=True)
async def test_all_of_vllm(gateway: GatewayServer, control: ControlServiceStub, core: FakeCore) -> None:
    """Every family of vLLM is there, of its type, with its labels and its buckets, and no other of that prefix."""
    answer = await scrape_after(gateway, control, core)
    families = {family.name.removeprefix("vllm:"): family for family in answer.families if "vllm:" in family.name}
    types = {name: family.type for name, family in families.items()}
    expected = {"gauge": GAUGES, "counter": COUNTERS, "histogram": HISTOGRAMS}
    assert types == {name: kind for kind, names in expected.items() for name in names}
    for name, labels in (GAUGES | COUNTERS).items():
        assert {frozenset(sample.labels) for sample in families[name].samples} == {frozenset(labels)}, name
    for name, buckets in HISTOGRAMS.items():
        samples = [sample for sample in families[name].samples if sample.name.endswith("_bucket")]
        assert [sample.labels["le"] for sample in samples] == [*(str(float(b)) for b in buckets.split()), "+Inf"], name
        assert {frozenset(sample.labels) for sample in samples} == {frozenset({*ENGINE, "le"})}


async def test_estimates(gateway: GatewayServer, control: ControlServiceStub, core: FakeCore) -> None:
    """What a core estimates adds up, and so do the lives of its blocks; what is none counts as nothing."""
    answer = await scrape_after(gateway, control, core)
    names = ("flops", "read_bytes", "write_bytes")
    assert [answer.engine(f"estimated_{name}_per_gpu_total") for name in names] == [2000, 400, 60]
    assert answer.engine("external_prefix_cache_queries_total") == 14
    assert answer.engine("external_prefix_cache_hits_total") == 6
    sums = [answer.engine(f"kv_block_{name}_seconds_sum") for name in ("lifetime", "idle_before_evict", "reuse_gap")]
    counts = [answer.engine(f"kv_block_{name}_seconds_count") for name in ("lifetime", "reuse_gap")]
    assert (sums, counts) == ([6, 3, 1.5], [4, 4])


async def test_sleep_and_pause(gateway: GatewayServer, control: ControlServiceStub, core: FakeCore) -> None:
    """What operators have done to the engine is shown, and what they undid: it would look idle otherwise."""

    async def shown() -> tuple[str, float]:
        answer = await scrape_async(gateway.metrics_address)
        states = ("awake", "weights_offloaded", "discard_all")
        (state,) = [name for name in states if answer.engine("engine_sleep_state", sleep_state=name)]
        return state, answer.value("sluicegate:scheduler_paused", model_name="bytes", engine="0")

    async def answered(call: "asyncio.Future[object]", *results: object) -> None:
        for result in results:
            core.answer(await core.receive_call(), result)
        await call

    assert await shown() == ("awake", 0)
    await answered(asyncio.ensure_future(control.PauseGeneration(pb.PauseGenerationRequest())), None)
    assert await shown() == ("awake", 1)
    await answered(asyncio.ensure_future(control.ResumeGeneration(pb.ResumeGenerationRequest())), None)
    assert await shown() == ("awake", 0)
    for level, state in ((0, "awake"), (1, "weights_offloaded"), (2, "discard_all")):
        await answered(asyncio.ensure_future(control.Sleep(pb.SleepRequest(level=level))), None)
        assert await shown() == (state, 1)
    await answered(asyncio.ensure_future(control.WakeUp(pb.WakeUpRequest())), None, False)
    assert await shown() == ("awake", 0)
