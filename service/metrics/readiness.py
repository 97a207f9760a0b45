"""Whether calls are taken on, for those who read metrics alone."""

from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from service.servicers.health import Health


def readiness_families(health: Health) -> Iterator[Metric]:
    """As the health service says of ``readiness``."""
    yield GaugeMetricFamily("sluicegate:serving", "1: calls are taken on.", health.is_serving)
