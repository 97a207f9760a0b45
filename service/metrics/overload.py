"""What shows that a server has too much to do, or its clients too little."""

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from service.loop_lag import LoopLag
from service.servicers.edge import ErrorEdge


def overload_families(edge: ErrorEdge, loop_lag: LoopLag) -> Iterator[Metric]:
    """Of all calls, whatever their service."""
    text = "Streams cut because their clients did not read."
    yield CounterMetricFamily("sluicegate:stalled_streams", text, edge.stall_watch.num_cut)
    text = "Bytes of the requests that calls hold, as they came over the wire."
    yield GaugeMetricFamily("sluicegate:held_request_bytes", text, edge.num_message_bytes)
    text = "Bytes of the large unary answers that their clients have not read."
    yield GaugeMetricFamily("sluicegate:unread_answer_bytes", text, edge.num_answer_bytes)
    text = "How late the event loop was, at worst, in the last 15 s to 30 s."
    yield GaugeMetricFamily("sluicegate:event_loop_lag_seconds", text, loop_lag.worst_s)
