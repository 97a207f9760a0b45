"""Spans on their way to a collector that may not be there: nobody waits for it, and the log hears of it once."""

import logging
import threading
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

logger = logging.getLogger(__name__)

_LIBRARY = "opentelemetry"
"""It would log every attempt."""


class CollectorExporter(SpanExporter):
    """Sends batches to ``endpoint``, on whatever thread calls. What is not taken, after some attempts, is dropped."""

    def __init__(self, endpoint: str) -> None:
        logging.getLogger(_LIBRARY).setLevel(logging.CRITICAL)
        self.num_exported = 0
        self.num_dropped = 0
        self._endpoint = endpoint
        self._exporter = OTLPSpanExporter(endpoint)
        self._is_failing = False
        self._closed = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.num_exported += len(spans)
        else:
            self.num_dropped += len(spans)
        self._note(result is not SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        """Give up what is being sent. May be called twice."""
        if not self._closed.is_set():
            self._closed.set()
            self._exporter.shutdown()

    def _note(self, is_failing: bool) -> None:
        if is_failing and not self._is_failing:
            logger.warning("no spans can be sent to %s: they are dropped until that is possible", self._endpoint)
        elif self._is_failing and not is_failing:
            logger.info("spans are sent to %s again, %d were dropped", self._endpoint, self.num_dropped)
        self._is_failing = is_failing
