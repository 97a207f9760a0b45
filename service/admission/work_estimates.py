"""What a core tells of its work only if asked to: estimates of FLOPs and bytes, and the life of its blocks.

vLLM's own options, `--enable-mfu-metrics` and `--kv-cache-metrics`. Whatever is no number in bounds counts as nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.wire.stats import SchedulerStats
from service.metrics.histogram import SECONDS_OF_A_BLOCK, Histogram

_MAX_PER_STEP = 1e24


@dataclass
class WorkEstimates:
    """Counts since the start; ``has_work`` and ``has_blocks``: the core has told of these at all."""

    num_flops: float = 0
    num_read_bytes: float = 0
    num_write_bytes: float = 0
    has_work: bool = False
    has_blocks: bool = False
    block_lifetime_s: Histogram = field(default_factory=lambda: Histogram(SECONDS_OF_A_BLOCK))
    block_idle_s: Histogram = field(default_factory=lambda: Histogram(SECONDS_OF_A_BLOCK))
    block_reuse_gap_s: Histogram = field(default_factory=lambda: Histogram(SECONDS_OF_A_BLOCK))

    def add(self, stats: SchedulerStats) -> None:
        """Take in one step."""
        if stats.perf_stats is not None:
            self.has_work = True
            self.num_flops += _sensible(stats.perf_stats, "num_flops_per_gpu")
            self.num_read_bytes += _sensible(stats.perf_stats, "num_read_bytes_per_gpu")
            self.num_write_bytes += _sensible(stats.perf_stats, "num_write_bytes_per_gpu")
        for eviction in stats.kv_cache_eviction_events:
            if isinstance(eviction, Mapping):
                self._add_eviction(eviction)

    def _add_eviction(self, eviction: Mapping[Any, Any]) -> None:
        self.has_blocks = True
        self.block_lifetime_s.observe(_sensible(eviction, "lifetime_seconds"))
        self.block_idle_s.observe(_sensible(eviction, "idle_seconds"))
        gaps = eviction.get("reuse_gaps_seconds")
        for gap in gaps if isinstance(gaps, list | tuple) else ():
            self.block_reuse_gap_s.observe(_sensible({"gap": gap}, "gap"))


def _sensible(values: Mapping[Any, Any], name: str) -> float:
    value = values.get(name)
    if not isinstance(value, int | float) or math.isnan(value):
        return 0
    return min(max(value, 0), _MAX_PER_STEP)
