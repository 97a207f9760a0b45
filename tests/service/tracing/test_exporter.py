"""Spans on their way to a collector."""

import asyncio

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult

from service.tracing.exporter import CollectorExporter
from tests.service.tracing.collector import Collector


def a_span() -> ReadableSpan:
    span = TracerProvider(shutdown_on_exit=False).get_tracer("test").start_span("a")
    span.end()
    assert isinstance(span, ReadableSpan)
    return span


async def test_a_collector_that_goes_and_comes_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does not take is dropped and counted; the log says once that it is gone, and once that it is back."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "0.2")
    async with Collector() as collector:
        address = collector.address
    exporter, spans = CollectorExporter(f"http://{address}"), [a_span(), a_span()]
    with caplog.at_level("DEBUG"):
        for _ in range(3):
            assert await asyncio.to_thread(exporter.export, spans) is SpanExportResult.FAILURE
        async with Collector(address) as collector:
            while await asyncio.to_thread(exporter.export, spans) is not SpanExportResult.SUCCESS:
                pass
            await asyncio.to_thread(exporter.export, spans)
            assert len(collector.received) == 4
    exporter.shutdown()
    exporter.shutdown()
    assert exporter.num_exported == 4
    assert exporter.num_dropped >= 6
    levels = [(record.levelname, record.name) for record in caplog.records if "grpc" not in record.name.lower()]
    told = [entry for entry in levels if entry[1].startswith(("service", "opentelemetry"))]
    assert told == [("WARNING", "service.tracing.exporter"), ("INFO", "service.tracing.exporter")]
