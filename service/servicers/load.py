"""How busy the server is, as GetLoad and WatchLoad tell it."""

from collections.abc import Iterable, Sequence

from service.cores.engine import Engine
from service.gate import Backend
from service.metrics.histogram import Histogram
from sluicegate.v1 import control_service_pb2 as pb

_COUNTED_HERE = "num_requests", "num_preemptions", "num_prefix_cache_queries", "num_prefix_cache_hits"
_TOKENS = "num_prompt_tokens", "num_output_tokens"
"""What each process of a gateway counts for itself. The rest is of the cores, which all of them see."""


def load_of(backend: Backend) -> pb.Load:
    """As this process knows it."""
    ranks = [_rank_load(backend, engine) for engine in backend.engine.engines.all]
    stats = [engine.stats for engine in backend.engine.engines.all]
    totals = [backend.engine.requests.totals[rank.rank] for rank in ranks]
    num_blocks_used = sum(rank.kv_cache_usage * rank.num_kv_blocks for rank in ranks)
    return pb.Load(
        num_running=sum(rank.num_running for rank in ranks),
        num_waiting=sum(rank.num_waiting for rank in ranks),
        num_requests=backend.generator.num_requests,
        kv_cache_usage=num_blocks_used / backend.engine_info.num_gpu_blocks,
        num_kv_blocks=backend.engine_info.num_gpu_blocks,
        num_preemptions=sum(of_rank.num_preemptions for of_rank in stats),
        num_prefix_cache_queries=sum(of_rank.num_prefix_cache_queries for of_rank in stats),
        num_prefix_cache_hits=sum(of_rank.num_prefix_cache_hits for of_rank in stats),
        ranks=ranks,
        num_prompt_tokens=sum(rank.num_prompt_tokens for rank in ranks),
        num_output_tokens=sum(rank.num_output_tokens for rank in ranks),
        time_to_first_token=_latency([of_rank.time_to_first_token_s for of_rank in totals]),
        inter_token_latency=_latency([of_rank.inter_token_latency_s for of_rank in totals]),
    )


def _latency(histograms: Sequence[Histogram]) -> pb.Latency:
    """Of all cores together; their bounds are the same."""
    counts = [sum(of_bucket) for of_bucket in zip(*(histogram.counts for histogram in histograms), strict=True)]
    total_s = sum(histogram.sum for histogram in histograms)
    return pb.Latency(bounds_s=histograms[0].bounds, counts=counts, sum_s=total_s)


def _rank_load(backend: Backend, engine: Engine) -> pb.RankLoad:
    scheduler, totals = engine.stats.scheduler, backend.engine.requests.totals[engine.rank]
    return pb.RankLoad(
        rank=engine.rank,
        num_running=scheduler.num_running_reqs,
        num_waiting=scheduler.num_waiting_reqs + scheduler.num_skipped_waiting_reqs,
        num_sequences=backend.engine.num_requests_at(engine.rank),
        kv_cache_usage=scheduler.kv_cache_usage,
        num_kv_blocks=engine.response.num_gpu_blocks if engine.response else 0,
        is_answering=engine.answers,
        num_prompt_tokens=totals.num_prompt_tokens,
        num_output_tokens=totals.num_generation_tokens,
    )


def with_loads_of_others(load: pb.Load, others: Iterable[pb.Load]) -> pb.Load:
    """``load``, with what other processes have counted added to it. Of the cores it must know the newest already."""
    for other in others:
        _add(load, other, (*_COUNTED_HERE, *_TOKENS))
        for rank, of_other in zip(load.ranks, other.ranks, strict=True):
            _add(rank, of_other, ("num_sequences", *_TOKENS))
        _add_latency(load.time_to_first_token, other.time_to_first_token)
        _add_latency(load.inter_token_latency, other.inter_token_latency)
    return load


def left_by(loads: Sequence[bytes]) -> bytes:
    """What processes that are gone had counted, all together; they hold nothing any more."""
    first, *others = map(pb.Load.FromString, loads)
    total = with_loads_of_others(first, others)
    total.num_requests = 0
    for rank in total.ranks:
        rank.num_sequences = 0
    return total.SerializeToString()


def _add(total: pb.Load | pb.RankLoad, other: pb.Load | pb.RankLoad, names: Iterable[str]) -> None:
    for name in names:
        setattr(total, name, getattr(total, name) + getattr(other, name))


def _add_latency(total: pb.Latency, other: pb.Latency) -> None:
    total.sum_s += other.sum_s
    total.counts[:] = [mine + others for mine, others in zip(total.counts, other.counts, strict=True)]
