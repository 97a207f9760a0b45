"""How busy the cores are, told from process to process."""

from core.wire.messages import EngineCoreOutputs
from core.wire.stats import SchedulerStats
from service.cores.engine import Engine
from service.workers.core_loads import adopt, loads_of
from tests.service.fake_core import READY


def a_core(rank: int = 0) -> Engine:
    engine = Engine(rank)
    engine.introduce(READY, None)
    return engine


def heard(engine: Engine, num_running: int) -> None:
    """Its statistics have come to this process."""
    stats = SchedulerStats(num_running, 2, 3, kv_cache_usage=0.5)
    engine.record(EngineCoreOutputs(engine_index=engine.rank, scheduler_stats=stats))


def test_the_newest_is_known_everywhere() -> None:
    """Whoever heard the core last knows best; what was sent before that is in what it says."""
    here, there = a_core(), a_core()
    heard(here, 1)
    heard(there, 5)
    here.num_sent_since_stats = 4
    adopt([here], loads_of([there]))
    scheduler = here.stats.scheduler
    assert (scheduler.num_running_reqs, here.num_waiting, scheduler.kv_cache_usage) == (5, 5, 0.5)
    adopt([there], loads_of([here]))
    assert loads_of([there]) == loads_of([here])


def test_what_is_older_is_not_taken_over() -> None:
    """Nor does it count twice what a core has counted."""
    here, there = a_core(), a_core()
    heard(there, 5)
    heard(here, 1)
    adopt([here], loads_of([there]))
    assert here.stats.scheduler.num_running_reqs == 1
    assert here.stats.num_prefix_cache_queries == 0


def test_a_core_that_is_gone_has_no_load() -> None:
    """Whatever others still know of it."""
    here, there = a_core(), a_core()
    here.lose("it is gone", is_awaited=True)
    heard(there, 5)
    adopt([here], loads_of([there]))
    assert here.stats.scheduler.num_running_reqs == 0
