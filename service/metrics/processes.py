"""The processes of the gateway, as metrics."""

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric


def process_families(num_serving: int, num_restarts: int) -> Iterator[Metric]:
    """``num_serving``: this one included. ``num_restarts``: workers that took the place of another."""
    yield GaugeMetricFamily("sluicegate:gateway_processes", "Processes that take calls.", num_serving)
    yield CounterMetricFamily("sluicegate:gateway_worker_restarts", "Workers that were replaced.", num_restarts)
