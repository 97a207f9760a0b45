"""What front ends are told of the scheduler after a step."""

from core.kv_cache import KVCache
from core.lora.loras import count_by_name
from core.request_queue import RequestQueue
from core.speculation import Speculation
from core.wire.stats import SchedulerStats


def make_stats(
    running: RequestQueue,
    waiting: RequestQueue,
    held: RequestQueue,
    kv_cache: KVCache,
    speculation: Speculation,
    has_adapters: bool,
) -> SchedulerStats:
    """The queues as they are, and what was counted since the last call."""
    return SchedulerStats(
        num_running_reqs=len(running),
        num_waiting_reqs=len(waiting),
        num_skipped_waiting_reqs=len(held),
        kv_cache_usage=kv_cache.usage,
        prefix_cache_stats=kv_cache.take_stats(),
        spec_decoding_stats=speculation.take_stats(),
        waiting_lora_adapters=count_by_name(waiting) if has_adapters else {},
        running_lora_adapters=count_by_name(running) if has_adapters else {},
    )
