"""The counts of one model's cores as metric families: vLLM's names, types, labels and buckets."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from core.wire.messages import EngineReadyResponse
from service.admission.work_estimates import WorkEstimates
from service.cores.engine_stats import EngineStats
from service.metrics.histogram import Histogram
from service.metrics.request_totals import RequestTotals

_LABELS = ["model_name", "engine"]


@dataclass(frozen=True)
class EngineReport:
    """What is known of one core."""

    info: EngineReadyResponse
    stats: EngineStats
    requests: RequestTotals


_Labelled = Callable[[EngineReport], Mapping[str, float]]
"""A value for each value of the one further label."""
_GAUGES: list[tuple[str, str, Callable[[EngineReport], float]]] = [
    ("num_requests_running", "Requests in the step that runs.", lambda engine: engine.stats.scheduler.num_running_reqs),
    ("num_requests_waiting", "Requests that wait to run.", lambda engine: _num_waiting(engine)),
    ("kv_cache_usage_perc", "KV cache in use, 1 = all of it.", lambda engine: engine.stats.scheduler.kv_cache_usage),
]
_LABELLED_GAUGES: list[tuple[str, str, str, _Labelled]] = [
    (
        "num_requests_waiting_by_reason",
        "Requests that wait to run.",
        "reason",
        lambda engine: _waiting_by_reason(engine),
    ),
]
_COUNTERS: list[tuple[str, str, Callable[[EngineReport], float]]] = [
    (
        "prefix_cache_queries",
        "Prompt tokens looked for in the prefix cache.",
        lambda engine: engine.stats.num_prefix_cache_queries,
    ),
    (
        "prefix_cache_hits",
        "Prompt tokens found in the prefix cache.",
        lambda engine: engine.stats.num_prefix_cache_hits,
    ),
    (
        "external_prefix_cache_queries",
        "Prompt tokens looked for in a cache that cores share.",
        lambda engine: engine.stats.num_external_queries,
    ),
    (
        "external_prefix_cache_hits",
        "Prompt tokens found in a cache that cores share.",
        lambda engine: engine.stats.num_external_hits,
    ),
    ("mm_cache_queries", "Images and the like looked for: models of text have none.", lambda _: 0),
    ("mm_cache_hits", "Images and the like found: models of text have none.", lambda _: 0),
    ("num_preemptions", "Requests put back to waiting.", lambda engine: engine.stats.num_preemptions),
    ("prompt_tokens", "Prompt tokens processed.", lambda engine: engine.requests.num_prompt_tokens),
    ("prompt_tokens_cached", "Prompt tokens that were cached.", lambda engine: engine.requests.num_cached_tokens),
    ("generation_tokens", "Tokens generated.", lambda engine: engine.requests.num_generation_tokens),
    ("spec_decode_num_drafts", "Drafts computed.", lambda engine: engine.stats.drafts.num_drafts),
    ("spec_decode_num_draft_tokens", "Tokens in drafts.", lambda engine: engine.stats.drafts.num_draft_tokens),
    (
        "spec_decode_num_accepted_tokens",
        "Draft tokens that were right.",
        lambda engine: engine.stats.drafts.num_accepted_tokens,
    ),
    ("corrupted_requests", "Requests with NaN in their logits.", lambda engine: engine.requests.num_corrupted),
]
_OWN_COUNTERS: list[tuple[str, str, Callable[[EngineReport], float]]] = [
    (
        "prefix_cache_preempted_queries",
        "Tokens looked for by requests that had lost their blocks: not in vllm:prefix_cache_queries.",
        lambda engine: engine.stats.num_preempted_queries,
    ),
    (
        "prefix_cache_preempted_hits",
        "Tokens found by requests that had lost their blocks: not in vllm:prefix_cache_hits.",
        lambda engine: engine.stats.num_preempted_hits,
    ),
    (
        "prefix_cache_resets",
        "Times that the prefix cache was emptied.",
        lambda engine: engine.stats.num_prefix_cache_resets,
    ),
]
"""What vLLM's statistics have and its metrics do not."""
_LABELLED_COUNTERS: list[tuple[str, str, str, _Labelled]] = [
    ("prompt_tokens_by_source", "Prompt tokens processed.", "source", lambda engine: _tokens_by_source(engine)),
    (
        "spec_decode_num_accepted_tokens_per_pos",
        "Draft tokens that were right, the first of a draft at 0.",
        "position",
        lambda engine: _accepted_by_position(engine),
    ),
    ("request_success", "Requests that ended.", "finished_reason", lambda engine: _finished_by_reason(engine)),
]
_HISTOGRAMS: list[tuple[str, str, Callable[[RequestTotals], Histogram]]] = [
    ("iteration_tokens_total", "Tokens per step.", lambda totals: totals.tokens_per_step),
    ("time_to_first_token_seconds", "From arrival to the first token.", lambda totals: totals.time_to_first_token_s),
    ("inter_token_latency_seconds", "From one token to the next.", lambda totals: totals.inter_token_latency_s),
    (
        "request_time_per_output_token_seconds",
        "From the first to the last token, by token: the mean of a request.",
        lambda totals: totals.time_per_output_token_s,
    ),
    ("e2e_request_latency_seconds", "From arrival to end.", lambda totals: totals.e2e_s),
    ("request_queue_time_seconds", "From arrival in the core until scheduled.", lambda totals: totals.queue_s),
    ("request_prefill_time_seconds", "From scheduled to the first token.", lambda totals: totals.prefill_s),
    ("request_decode_time_seconds", "From the first to the last token.", lambda totals: totals.decode_s),
    ("request_inference_time_seconds", "From scheduled to the last token.", lambda totals: totals.inference_s),
    ("request_params_n", "Sequences asked for.", lambda totals: totals.n),
]
_TOKEN_HISTOGRAMS: list[tuple[str, str, Callable[[RequestTotals], Histogram]]] = [
    ("request_prompt_tokens", "Tokens in the prompt.", lambda totals: totals.prompt_tokens),
    ("request_generation_tokens", "Tokens generated.", lambda totals: totals.generation_tokens),
    (
        "request_max_num_generation_tokens",
        "Tokens of a call's longest sequence.",
        lambda totals: totals.max_generation_tokens,
    ),
    ("request_params_max_tokens", "max_tokens asked for.", lambda totals: totals.max_tokens),
    (
        "request_prefill_kv_computed_tokens",
        "Prompt tokens that were not cached.",
        lambda totals: totals.prefill_computed_tokens,
    ),
]


_ESTIMATES: list[tuple[str, str, Callable[[WorkEstimates], float]]] = [
    ("estimated_flops_per_gpu", "Floating-point operations.", lambda estimates: estimates.num_flops),
    ("estimated_read_bytes_per_gpu", "Bytes read.", lambda estimates: estimates.num_read_bytes),
    ("estimated_write_bytes_per_gpu", "Bytes written.", lambda estimates: estimates.num_write_bytes),
]
_BLOCK_HISTOGRAMS: list[tuple[str, str, Callable[[WorkEstimates], Histogram]]] = [
    ("kv_block_lifetime_seconds", "From allocation to eviction.", lambda estimates: estimates.block_lifetime_s),
    (
        "kv_block_idle_before_evict_seconds",
        "From the last use to eviction.",
        lambda estimates: estimates.block_idle_s,
    ),
    ("kv_block_reuse_gap_seconds", "From one use to the next.", lambda estimates: estimates.block_reuse_gap_s),
]
"""Of cores that tell of these: the others would have zeros, which are no estimates."""


def engine_families(model_name: str, engines: Mapping[int, EngineReport]) -> Iterator[Metric]:
    """The families of all ``engines``, by rank."""
    labelled = {(model_name, str(rank)): engine for rank, engine in engines.items()}
    yield from _plain(labelled)
    yield from _labelled(labelled)
    yield from _histograms(labelled)
    yield _cache_config(labelled)
    yield from _estimates(labelled)


_Engines = Mapping[tuple[str, str], EngineReport]


def _plain(engines: _Engines) -> Iterator[Metric]:
    for name, text, value_of in _GAUGES:
        gauge = GaugeMetricFamily(f"vllm:{name}", text, labels=_LABELS)
        for labels, engine in engines.items():
            gauge.add_metric(labels, value_of(engine))
        yield gauge
    for prefix, table in (("vllm", _COUNTERS), ("sluicegate", _OWN_COUNTERS)):
        for name, text, value_of in table:
            counter = CounterMetricFamily(f"{prefix}:{name}", text, labels=_LABELS)
            for labels, engine in engines.items():
                counter.add_metric(labels, value_of(engine))
            yield counter


def _labelled(engines: _Engines) -> Iterator[Metric]:
    for kind, table in ((GaugeMetricFamily, _LABELLED_GAUGES), (CounterMetricFamily, _LABELLED_COUNTERS)):
        for name, text, label, values_of in table:
            family = kind(f"vllm:{name}", text, labels=[*_LABELS, label])
            for labels, engine in engines.items():
                for label_value, value in values_of(engine).items():
                    family.add_metric([*labels, label_value], value)
            yield family


def _histograms(engines: _Engines) -> Iterator[Metric]:
    for table, is_bounded in ((_HISTOGRAMS, False), (_TOKEN_HISTOGRAMS, True)):
        for name, text, histogram_of in table:
            family = HistogramMetricFamily(f"vllm:{name}", text, labels=_LABELS)
            for labels, engine in engines.items():
                histogram = histogram_of(engine.requests)
                highest = engine.info.max_model_len if is_bounded else float("inf")
                family.add_metric(labels, histogram.buckets(highest), histogram.sum)
            yield family


def _estimates(engines: _Engines) -> Iterator[Metric]:
    if any(engine.stats.estimates.has_work for engine in engines.values()):
        for name, text, value_of in _ESTIMATES:
            counter = CounterMetricFamily(f"vllm:{name}", text, labels=_LABELS)
            for labels, engine in engines.items():
                counter.add_metric(labels, value_of(engine.stats.estimates))
            yield counter
    if any(engine.stats.estimates.has_blocks for engine in engines.values()):
        for name, text, histogram_of in _BLOCK_HISTOGRAMS:
            family = HistogramMetricFamily(f"vllm:{name}", text, labels=_LABELS)
            for labels, engine in engines.items():
                histogram = histogram_of(engine.stats.estimates)
                family.add_metric(labels, histogram.buckets(), histogram.sum)
            yield family


def _cache_config(engines: _Engines) -> Metric:
    family = GaugeMetricFamily(
        "vllm:cache_config_info", "The KV cache.", labels=[*_LABELS, "block_size", "num_gpu_blocks"]
    )
    for labels, engine in engines.items():
        family.add_metric([*labels, str(engine.info.block_size), str(engine.info.num_gpu_blocks)], 1)
    return family


def lora_family(max_loras: int, running: Iterable[str], waiting: Iterable[str]) -> Metric:
    """Of all cores together, as vLLM tells it: names in labels, the time of now as the value."""
    labels = ["max_lora", "running_lora_adapters", "waiting_lora_adapters"]
    family = GaugeMetricFamily("vllm:lora_requests_info", "Adapters of live requests.", labels=labels)
    family.add_metric([str(max_loras), ",".join(sorted(running)), ",".join(sorted(waiting))], time.time())
    return family


def _num_waiting(engine: EngineReport) -> int:
    return sum(_waiting_by_reason(engine).values())


def _waiting_by_reason(engine: EngineReport) -> dict[str, int]:
    scheduler = engine.stats.scheduler
    return {"capacity": scheduler.num_waiting_reqs, "deferred": scheduler.num_skipped_waiting_reqs}


def _tokens_by_source(engine: EngineReport) -> dict[str, int]:
    totals = engine.requests
    return {
        "local_compute": totals.num_computed_tokens,
        "local_cache_hit": totals.num_local_cached_tokens,
        "external_kv_transfer": totals.num_external_cached_tokens,
    }


def _accepted_by_position(engine: EngineReport) -> dict[str, int]:
    return {str(position): count for position, count in engine.stats.drafts.num_accepted_tokens_per_pos.items()}


def _finished_by_reason(engine: EngineReport) -> dict[str, int]:
    return {reason.name.lower(): count for reason, count in engine.requests.num_finished.items()}
