"""Statistics that make no sense."""

import logging
import math

import pytest

from core.wire.messages import EngineCoreOutputs
from core.wire.stats import PrefixCacheStats, SchedulerStats, SpecDecodingStats
from service.cores.engine_stats import EngineStats


@pytest.mark.parametrize(
    ("sent", "kept"), [(math.nan, 0.0), (-1.0, 0.0), (7.5, 1.0), (math.inf, 1.0), (-math.inf, 0.0), (0.25, 0.25)]
)
def test_usage_is_a_part(sent: float, kept: float) -> None:
    """Of everything, whatever the core says."""
    stats = EngineStats()
    stats.record(EngineCoreOutputs(scheduler_stats=SchedulerStats(kv_cache_usage=sent)))
    assert stats.scheduler.kv_cache_usage == kept


@pytest.mark.parametrize(("sent", "kept"), [(-5, 0), (2**63, 2**32 - 1), (7, 7)])
def test_counts_can_be_counted(sent: int, kept: int, caplog: pytest.LogCaptureFixture) -> None:
    """They fit where they are reported; the log says once that they did not."""
    stats = EngineStats()
    for _ in range(3):
        cache = PrefixCacheStats(queries=sent, hits=sent)
        scheduler = SchedulerStats(num_running_reqs=sent, num_waiting_reqs=sent, prefix_cache_stats=cache)
        with caplog.at_level(logging.WARNING):
            stats.record(EngineCoreOutputs(scheduler_stats=scheduler))
    assert stats.scheduler.num_running_reqs == stats.scheduler.num_waiting_reqs == min(kept, 2**20)
    assert (stats.num_prefix_cache_queries, stats.num_prefix_cache_hits) == (3 * kept, 3 * kept)
    assert len(caplog.records) == (sent != kept)


def test_drafts_that_make_no_sense() -> None:
    """Negative and huge counts are taken for the nearest that do, and only so many positions are kept."""
    stats = EngineStats()
    sent = SpecDecodingStats(3, -1, 2**70, 7, [-1, 2**70, *range(1000)])
    stats.record(EngineCoreOutputs(scheduler_stats=SchedulerStats(spec_decoding_stats=sent)))
    assert (stats.drafts.num_drafts, stats.drafts.num_draft_tokens, stats.drafts.num_accepted_tokens) == (
        0,
        2**32 - 1,
        7,
    )
    by_position = stats.drafts.num_accepted_tokens_per_pos
    assert (by_position[0], by_position[1], by_position[5], len(by_position)) == (0, 2**32 - 1, 3, 256)
