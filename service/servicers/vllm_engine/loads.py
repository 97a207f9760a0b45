"""What GetLoads says: how busy each core is, and how long new work would wait there."""

from smg_grpc_proto.generated import vllm_engine_pb2 as pb

from core.wire.messages import EngineReadyResponse
from service.cores.engine import Engine
from service.gate import Backend

_MAX_INT32 = 2**31 - 1


def scheduler_load(backend: Backend, engine: Engine) -> pb.SchedulerLoad:
    """Of one core, as its last statistics and its last outputs have it. What is unknown is 0."""
    scheduler, requests = engine.stats.scheduler, backend.engine.requests
    num_waiting = scheduler.num_waiting_reqs + scheduler.num_skipped_waiting_reqs
    max_tokens = _max_total_tokens(engine.response)
    hit_rate = requests.totals[engine.rank].recent.cache_hit_rate
    return pb.SchedulerLoad(
        dp_rank=engine.rank,
        num_running_reqs=scheduler.num_running_reqs,
        num_waiting_reqs=num_waiting,
        num_total_reqs=scheduler.num_running_reqs + num_waiting,
        num_used_tokens=round(scheduler.kv_cache_usage * max_tokens),
        max_total_num_tokens=max_tokens,
        token_usage=scheduler.kv_cache_usage,
        utilization=scheduler.kv_cache_usage,
        gen_throughput=requests.tokens_per_second(engine.rank),
        cache_hit_rate=hit_rate,
        max_running_requests=max_running_requests(engine.response),
        num_waiting_uncached_tokens=round(requests.num_waiting_tokens(engine.rank, num_waiting) * (1 - hit_rate)),
    )


def max_running_requests(response: EngineReadyResponse | None) -> int:
    """How many requests a core runs at once; 0 if it does not say, as vLLM 0.25 does not."""
    told = response.max_num_seqs if response is not None else 0
    return min(told, _MAX_INT32) if isinstance(told, int) else 0


def _max_total_tokens(response: EngineReadyResponse | None) -> int:
    if response is None:
        return 0
    return min(response.kv_cache_size_tokens or response.num_gpu_blocks * response.block_size, _MAX_INT32)
