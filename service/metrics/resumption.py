"""What cores that went have cost, and what it did not cost."""

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from service.cores.engines import Engines
from service.cores.resumption import Resumption


def resumption_families(engines: Engines, resumption: Resumption) -> Iterator[Metric]:
    """Of all cores together. A core that was lost is counted for good, also when another has its place."""
    yield CounterMetricFamily("sluicegate:cores_lost", "Cores that went without being told to.", engines.num_lost)
    text = "Cores that took the place of another."
    yield CounterMetricFamily("sluicegate:core_restarts", text, engines.num_restarts)
    text = "Requests that went on in another core than the one that had them first."
    yield CounterMetricFamily("sluicegate:resumed_requests", text, resumption.num_resumed)
    text = "Requests that ended with their core, though others went on."
    yield CounterMetricFamily("sluicegate:unresumable_requests", text, resumption.num_lost)
    text = "Calls that have no core, and wait for one."
    yield GaugeMetricFamily("sluicegate:calls_without_core", text, len(resumption))
    text = "How long the last core that was lost took to be replaced."
    yield GaugeMetricFamily("sluicegate:last_interruption_seconds", text, engines.last_interruption_s)
