"""OpenTelemetry, with all that its variables say: sampler, propagators, resource, headers, batches.

Imported only where spans are wanted: it takes as long as half of the gateway.
"""

import threading
import time
from collections.abc import Iterator

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client.metrics_core import CounterMetricFamily, Metric

from service.tracing.call_spans import CallSpans
from service.tracing.exporter import CollectorExporter

_SERVICE = "sluicegate"
_UNNAMED = "unknown_service"
"""How the library calls a service that no variable names."""


class Tracing:
    """``spans`` observes calls. ``close`` it: what is not sent yet goes out, or is lost after a while."""

    def __init__(self, endpoint: str) -> None:
        self._exporter = CollectorExporter(endpoint)
        self._processor = BatchSpanProcessor(self._exporter)
        provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        provider.add_span_processor(self._processor)
        self.spans = CallSpans(provider.get_tracer(__name__))

    def families(self) -> Iterator[Metric]:
        """Those sent, and those that nobody took."""
        counts = {"exported": self._exporter.num_exported, "dropped": self._exporter.num_dropped}
        family = CounterMetricFamily("sluicegate:spans", "Spans made, by what became of them.", labels=["result"])
        for result, count in counts.items():
            family.add_metric([result], count)
        yield family

    def close(self, timeout_s: float) -> None:
        """Blocks for ``timeout_s`` at most, or little more."""
        deadline = time.monotonic() + timeout_s
        closing = threading.Thread(target=self._processor.shutdown, name="close-tracing", daemon=True)
        closing.start()
        closing.join(timeout_s)
        self._exporter.shutdown()
        closing.join(max(0.1, deadline - time.monotonic()))


def _resource() -> Resource:
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith(_UNNAMED):
        return resource.merge(Resource({SERVICE_NAME: _SERVICE}))
    return resource
