"""How busy the cores are, told from process to process.

A core sends the statistics of a step to one front end alone, the first that has outputs in it. So each process knows
the state of a core as of some step, maybe long ago: the newest that any of them knows is the one that counts.
"""

from collections.abc import Iterable

import msgspec

from core.wire.stats import SchedulerStats
from service.cores.engine import Engine


class CoreLoad(msgspec.Struct, frozen=True, array_like=True):
    """Of the core of ``rank``; ``at``: by the monotonic clock, which the processes of a machine share."""

    rank: int
    at: float
    num_running_reqs: int
    num_waiting_reqs: int
    num_skipped_waiting_reqs: int
    kv_cache_usage: float


def loads_of(engines: Iterable[Engine]) -> list[CoreLoad]:
    """As they are known here."""
    return [_load_of(engine) for engine in engines]


def adopt(engines: Iterable[Engine], loads: Iterable[CoreLoad]) -> None:
    """Take over what is newer than what is known here."""
    by_rank = {engine.rank: engine for engine in engines}
    for load in loads:
        engine = by_rank[load.rank]
        if load.at > engine.stats.load_at and engine.is_alive:
            engine.stats.adopt_load(_stats_of(load), load.at)
            engine.num_sent_since_stats = 0


def _load_of(engine: Engine) -> CoreLoad:
    stats, scheduler = engine.stats, engine.stats.scheduler
    counts = scheduler.num_running_reqs, scheduler.num_waiting_reqs, scheduler.num_skipped_waiting_reqs
    return CoreLoad(engine.rank, stats.load_at, *counts, scheduler.kv_cache_usage)


def _stats_of(load: CoreLoad) -> SchedulerStats:
    return SchedulerStats(
        num_running_reqs=load.num_running_reqs,
        num_waiting_reqs=load.num_waiting_reqs,
        num_skipped_waiting_reqs=load.num_skipped_waiting_reqs,
        kv_cache_usage=load.kv_cache_usage,
    )
