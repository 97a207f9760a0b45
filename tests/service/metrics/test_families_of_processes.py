"""The metrics of several processes as if they were one."""

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from service.metrics.families_of_processes import decoded, encoded, joined, left_by


def counter(name: str, **values: float) -> Metric:
    family = CounterMetricFamily(name, "Counts.", labels=["label"])
    for label, value in values.items():
        family.add_metric([label], value)
    return family


def gauge(name: str, value: float) -> Metric:
    return GaugeMetricFamily(name, "Stands.", value)


def histogram(*counts: int) -> Metric:
    family = HistogramMetricFamily("sluicegate:seconds", "Takes.", labels=["method"])
    family.add_metric(["m"], [("1.0", counts[0]), ("+Inf", counts[1])], sum(counts) / 2)
    return family


def loras(running: str, waiting: str) -> Metric:
    names = ["max_lora", "running_lora_adapters", "waiting_lora_adapters"]
    family = GaugeMetricFamily("vllm:lora_requests_info", "Adapters.", labels=names)
    family.add_metric(["4", running, waiting], 1)
    return family


def samples(metric: Metric) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in metric.samples}


def test_they_travel_as_they_are() -> None:
    """Names, kinds, texts, labels and values arrive in another process."""
    families = [counter("sluicegate:rpcs", a=1, b=2), gauge("sluicegate:streams_open", 3), histogram(1, 2)]
    assert decoded(encoded(families)) == families


def test_what_each_counts_is_added() -> None:
    """Counters and histograms by their labels, which not every process needs to have; so do gauges of one's own."""
    mine = [counter("sluicegate:rpcs", a=1, b=2), gauge("sluicegate:live_requests", 3), histogram(1, 2)]
    other = [counter("sluicegate:rpcs", b=10, c=20), gauge("sluicegate:live_requests", 4), histogram(10, 30)]
    rpcs, live, seconds = joined([mine, other])
    assert samples(rpcs) == samples(counter("sluicegate:rpcs", a=1, b=12, c=20))
    assert samples(live) == samples(gauge("sluicegate:live_requests", 7))
    assert samples(seconds) == samples(histogram(11, 32))
    assert (rpcs.type, live.type, seconds.type) == ("counter", "gauge", "histogram")


def test_what_all_see_is_told_once() -> None:
    """Gauges of the cores and of the machine, and counters of what happens to the cores, are the first process's."""
    mine = [gauge("vllm:num_requests_running", 2), counter("sluicegate:cores_lost", a=1), gauge("python_info", 1)]
    other = [gauge("vllm:num_requests_running", 1), counter("sluicegate:cores_lost", a=1), gauge("python_info", 1)]
    assert joined([mine, other]) == mine


def test_the_worst_process_counts() -> None:
    """A loop that lags is not made good by one that does not."""
    lags = [[gauge("sluicegate:event_loop_lag_seconds", seconds)] for seconds in (0.1, 0.5, 0.2)]
    assert joined(lags) == [gauge("sluicegate:event_loop_lag_seconds", 0.5)]


def test_what_is_gone_holds_nothing() -> None:
    """Of processes that have ended only what they have counted is kept."""
    families = [counter("sluicegate:rpcs", a=1), gauge("sluicegate:live_requests", 3)]
    assert decoded(left_by([encoded(families), encoded(families)])) == [counter("sluicegate:rpcs", a=2)]


def test_adapters_of_all_processes() -> None:
    """They stand in one series, each name once."""
    (info,) = joined([[loras("a,b", "")], [loras("b,c", "d")]])
    assert samples(info) == samples(loras("a,b,c", "d"))
