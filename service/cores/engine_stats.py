"""How busy a core is, as its messages tell: numbers that make sense, whatever it sends."""

import logging
import math
import time
from dataclasses import dataclass, field

from core.wire.messages import EngineCoreOutputs, EventType
from core.wire.stats import PrefixCacheStats, SchedulerStats
from service.admission.work_estimates import WorkEstimates
from service.cores.draft_totals import DraftTotals

logger = logging.getLogger(__name__)

_MAX_REQUESTS = 2**20
"""Of one core; those of all cores are added in 32 bits."""
_MAX_COUNT = 2**32 - 1
_GAUGES = "num_running_reqs", "num_waiting_reqs", "num_skipped_waiting_reqs"
_COUNTS = (
    "requests",
    "queries",
    "hits",
    "preempted_requests",
    "preempted_queries",
    "preempted_hits",
)


@dataclass
class EngineStats:
    """The scheduler as last reported, and counts since the start. Written by the reader, read by anyone on the loop.

    Requests are in [0, 2**20], counts in [0, 2**32 - 1] and ``kv_cache_usage`` in [0, 1]: a core of another version may
    send what is not.
    """

    scheduler: SchedulerStats = field(default_factory=SchedulerStats)
    load_at: float = 0.0
    """When ``scheduler`` came, by the monotonic clock."""
    num_preemptions: int = 0
    num_prefix_cache_queries: int = 0
    num_prefix_cache_hits: int = 0
    num_preempted_queries: int = 0
    num_preempted_hits: int = 0
    num_prefix_cache_resets: int = 0
    num_external_queries: int = 0
    num_external_hits: int = 0
    drafts: DraftTotals = field(default_factory=DraftTotals)
    estimates: WorkEstimates = field(default_factory=WorkEstimates)
    has_been_senseless: bool = False

    def forget_load(self) -> None:
        """The core is gone: nothing runs or waits in it."""
        self.adopt_load(SchedulerStats(), time.monotonic())

    def adopt_load(self, scheduler: SchedulerStats, at: float) -> None:
        """Another front end got these statistics ``at`` that time: what they count, it has counted."""
        self.scheduler, self.load_at = scheduler, at

    def record(self, outputs: EngineCoreOutputs) -> None:
        """Take in one message: the counts of prefix cache and drafts in it are those of one step."""
        if (scheduler := outputs.scheduler_stats) is not None:
            self._make_sensible(scheduler)
            self.scheduler, self.load_at = scheduler, time.monotonic()
            self._count_lookups(scheduler.prefix_cache_stats)
            if scheduler.spec_decoding_stats is not None:
                self.drafts.add(scheduler.spec_decoding_stats)
            if scheduler.connector_prefix_cache_stats is not None:
                self._count_external_lookups(scheduler.connector_prefix_cache_stats)
            if scheduler.perf_stats is not None or scheduler.kv_cache_eviction_events:
                self.estimates.add(scheduler)
        for output in outputs.outputs:
            if output.events:
                self.num_preemptions += sum(event.type is EventType.PREEMPTED for event in output.events)

    def _count_lookups(self, step: PrefixCacheStats) -> None:
        self.num_prefix_cache_queries += step.queries
        self.num_prefix_cache_hits += step.hits
        self.num_preempted_queries += step.preempted_queries
        self.num_preempted_hits += step.preempted_hits
        self.num_prefix_cache_resets += step.reset

    def _count_external_lookups(self, step: PrefixCacheStats) -> None:
        """Of a cache that cores share; ours have none."""
        for name in _COUNTS:
            _clamp(step, name, _MAX_COUNT)
        self.num_external_queries += step.queries
        self.num_external_hits += step.hits

    def _make_sensible(self, scheduler: SchedulerStats) -> None:
        """In place. What was not is logged once."""
        clamped = [_clamp(scheduler, name, _MAX_REQUESTS) for name in _GAUGES]
        clamped += [_clamp(scheduler.prefix_cache_stats, name, _MAX_COUNT) for name in _COUNTS]
        usage = scheduler.kv_cache_usage
        scheduler.kv_cache_usage = 0.0 if math.isnan(usage) else min(max(usage, 0.0), 1.0)
        if (any(clamped) or scheduler.kv_cache_usage != usage) and not self.has_been_senseless:
            self.has_been_senseless = True
            logger.warning("the core sends statistics that make no sense; they are taken for the nearest that do")


def _clamp(stats: object, name: str, bound: int) -> bool:
    """Whether it had to be."""
    value = getattr(stats, name)
    if 0 <= value <= bound:
        return False
    setattr(stats, name, min(max(value, 0), bound))
    return True
