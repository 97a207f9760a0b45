"""Who follows the prefix caches, and how often they had to begin anew."""

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from service.kv_events.feed import KvEventFeed


def kv_event_families(feed: KvEventFeed) -> Iterator[Metric]:
    """Of one process."""
    text = "Subscribers to KV events."
    yield GaugeMetricFamily("sluicegate:kv_event_subscribers", text, feed.num_subscriptions)
    text = "Times that the KV events of a core could not be followed any more, by its rank."
    losses = CounterMetricFamily("sluicegate:kv_event_losses", text, labels=["engine"])
    for rank, num_losses in enumerate(feed.num_losses):
        losses.add_metric([str(rank)], num_losses)
    yield losses
