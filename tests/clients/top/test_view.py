"""Rates and latencies of the last seconds."""

from sluicegate.v1 import control_service_pb2 as pb
from sluicegate_client.top.view import WINDOW_S, Watcher
from tests.clients.fake_control import a_load


def test_the_first_look_has_levels_only() -> None:
    """There is nothing yet to take a difference of."""
    view = Watcher().see(a_load(100), 5.0)
    assert (view.load.num_running, view.output_tokens_per_s, view.time_to_first_token.median_s) == (2, 0.0, None)
    assert view.prefix_hit_rate is None


def test_rates_are_of_the_window() -> None:
    """What is older than the window counts no more."""
    watcher = Watcher()
    watcher.see(a_load(0), 0.0)
    watcher.see(a_load(1000), 1.0)
    view = watcher.see(a_load(1200, num_prefix_cache_queries=10, num_prefix_cache_hits=4), WINDOW_S + 1)
    assert view.output_tokens_per_s == 200 / WINDOW_S
    assert [rank.output_tokens_per_s for rank in view.ranks] == [200 / WINDOW_S]
    assert view.prefix_hit_rate == 0.4
    assert view.time_to_first_token.median_s == 0.0075


def test_another_server_at_the_same_address() -> None:
    """Counts that fall begin anew: no rate is negative."""
    watcher = Watcher()
    watcher.see(a_load(1000), 0.0)
    assert watcher.see(a_load(10), 1.0).output_tokens_per_s == 0
    assert watcher.see(a_load(30), 2.0).output_tokens_per_s == 20


def test_a_core_more_or_less() -> None:
    """A server that names other cores than before is shown with those it names now, as far as they were there."""
    watcher = Watcher()
    watcher.see(a_load(0, ranks=[]), 0.0)
    assert watcher.see(a_load(1, ranks=[pb.RankLoad()]), 1.0).ranks == []
