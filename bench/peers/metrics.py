"""The figures that are compared, where they come from, and what the machine would allow."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.peers.limits import Limits
from bench.peers.measure import Round
from bench.peers.peer import Peer
from bench.statistics import Summary
from bench.workload import WORKLOADS


@dataclass(frozen=True)
class Metric:
    """``of`` a round; ``limit`` None where the machine sets none that is worth telling."""

    name: str
    unit: str
    of: Callable[[Round], float]
    limit: Callable[[Limits], float] | None = None
    needs: str | None = None
    """The pass that it is of."""
    more_is_better: bool = False

    @property
    def title(self) -> str:
        return f"{self.name}, {self.unit}"

    def ratio(self, value: float, other: float) -> float:
        """How many times better ``value`` is than ``other``."""
        return value / other if self.more_is_better else other / value


def _of_pass(name: str, value: Callable[[Summary], float]) -> Callable[[Round], float]:
    return lambda done: value(done.passes[name])


def _output_rate(summary: Summary) -> float:
    return summary.output_tokens_per_s


def _ttft_ms(summary: Summary) -> float:
    return summary.ttft_ms.median


def _itl_ms(summary: Summary) -> float:
    return summary.itl_ms.median


def _duration_s(summary: Summary) -> float:
    return summary.duration_s


def _wave_rate(limits: Limits, name: str) -> float:
    workload = WORKLOADS[name]
    return workload.concurrency * workload.output_tokens / limits.wave_s(workload)


W1, W2, W3, W4 = (WORKLOADS[name] for name in ("W1", "W2", "W3", "W4"))
METRICS = (
    Metric("W1", "tok/s", _of_pass("W1", _output_rate), lambda limits: _wave_rate(limits, "W1"), "W1", True),
    Metric("W1 TTFT", "ms", _of_pass("W1", _ttft_ms), lambda limits: limits.ttft_s(W1) * 1e3, "W1"),
    Metric("W1 ITL", "ms", _of_pass("W1", _itl_ms), lambda limits: limits.itl_s(W1) * 1e3, "W1"),
    Metric("W2", "tok/s", _of_pass("W2", _output_rate), lambda limits: _wave_rate(limits, "W2"), "W2", True),
    Metric("W2 TTFT", "ms", _of_pass("W2", _ttft_ms), None, "W2"),
    Metric("W2 ITL", "ms", _of_pass("W2", _itl_ms), lambda limits: limits.itl_s(W2) * 1e3, "W2"),
    Metric("W3 TTFT", "ms", _of_pass("W3", _ttft_ms), lambda limits: limits.ttft_s(W3) * 1e3, "W3"),
    Metric("W4 cold", "s", _of_pass("W4 cold", _duration_s), lambda limits: limits.wave_s(W4), "W4 cold"),
    Metric("W4 warm", "s", _of_pass("W4 warm", _duration_s), lambda limits: limits.wave_s(W4, True), "W4 warm"),
    Metric("start", "s", lambda done: done.start_s),
    Metric("memory", "MB", lambda done: sum(done.peak_memory_bytes.values()) / 1e6),
)


def medians(rounds: Sequence[Round]) -> dict[str, float]:
    """By the metric's title, of those that were measured."""
    measured = [metric for metric in METRICS if metric.needs is None or metric.needs in rounds[0].passes]
    return {metric.title: median(metric.of(done) for done in rounds) for metric in measured}


def limits_of(limits: Limits) -> dict[str, float]:
    """By the metric's title."""
    return {metric.title: metric.limit(limits) for metric in METRICS if metric.limit is not None}


@dataclass(frozen=True)
class Comparison:
    """Ours with the best other of its family, by one metric."""

    metric: Metric
    ours: str
    other: str
    ratio: float
    """How many times better ours is."""


def compare(peers: Iterable[Peer], figures: Mapping[str, Mapping[str, float]]) -> list[Comparison]:
    """``figures``: of each peer by name, by the metric's title."""
    measured = [peer for peer in peers if peer.name in figures]
    comparisons = []
    for ours in (peer for peer in measured if peer.is_ours):
        others = [peer.name for peer in measured if peer.family is ours.family and not peer.is_ours]
        for metric in METRICS:
            values = {name: figures[name][metric.title] for name in others if metric.title in figures[name]}
            if values and metric.title in figures[ours.name]:
                best = (max if metric.more_is_better else min)(values, key=values.__getitem__)
                ratio = metric.ratio(figures[ours.name][metric.title], values[best])
                comparisons.append(Comparison(metric, ours.name, best, ratio))
    return comparisons
