"""Calls by method, status and duration."""

import time
from collections import defaultdict
from collections.abc import Iterator

import grpc
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from service.calls.call import Call
from service.calls.interceptor import Context
from service.metrics.histogram import SECONDS_TO_FIRST_TOKEN, Histogram

_NO_METHOD = "unknown"
"""Of a call to what is not there: its name is the caller's to choose, and would make a series each."""


class RpcMetrics:
    """Counts the calls of every server that it observes."""

    def __init__(self) -> None:
        self._num_handled: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._durations_s: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(SECONDS_TO_FIRST_TOKEN))
        self._num_streams: defaultdict[str, int] = defaultdict(int)

    def begin(self, call: Call, context: Context, *, is_stream: bool) -> None:  # noqa: ARG002
        self._num_streams[call.method] += is_stream

    def end(self, call: Call, context: Context, code: grpc.StatusCode, *, is_stream: bool) -> None:  # noqa: ARG002
        self._num_streams[call.method] -= is_stream
        self._num_handled[call.method, code.name] += 1
        self._durations_s[call.method].observe(time.monotonic() - call.started_at)

    def end_part(self, call: Call, part: Call) -> None:
        """It is no call of its own."""

    def miss(self) -> None:
        self._num_handled[_NO_METHOD, grpc.StatusCode.UNIMPLEMENTED.name] += 1

    def families(self) -> Iterator[Metric]:
        """What was counted, as metric families."""
        handled = CounterMetricFamily("sluicegate:rpcs", "Calls that ended.", labels=["method", "code"])
        for labels, count in self._num_handled.items():
            handled.add_metric(labels, count)
        yield handled
        durations = HistogramMetricFamily("sluicegate:rpc_duration_seconds", "How long calls took.", labels=["method"])
        for method, histogram in self._durations_s.items():
            durations.add_metric([method], histogram.buckets(), histogram.sum)
        yield durations
        streams = GaugeMetricFamily("sluicegate:streams_open", "Streaming calls that run.", labels=["method"])
        for method, count in self._num_streams.items():
            streams.add_metric([method], count)
        yield streams
