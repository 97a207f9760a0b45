"""The metrics of several processes as if they were one: what each counts is added, what all see is told once."""

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import msgspec
from prometheus_client.metrics_core import Metric

_OURS = "sluicegate:"
_ADDED_GAUGES = {
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_open_fds",
    "process_max_fds",
}
"""Of what each process has some, as of what our own gauges tell. Others are of the cores, and of the machine."""
_TOLD_ONCE = {
    "sluicegate:scheduler_paused",
    "sluicegate:serving",
    "sluicegate:tls_certificate_expiry_timestamp_seconds",
}
"""Gauges of our own of what all processes share."""
_WORST_GAUGES = {"sluicegate:event_loop_lag_seconds", "sluicegate:last_interruption_seconds"}
"""What counts is the process that does worst."""
_SEEN_BY_ALL = f"{_OURS}core", f"{_OURS}kv_event_losses"
"""How counters begin that tell of the cores: each process sees the same."""
_LORAS = "vllm:lora_requests_info"
_LORA_NAMES = "running_lora_adapters", "waiting_lora_adapters"


class Sample(msgspec.Struct, array_like=True):
    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct, array_like=True):
    """A metric family on its way from one process to another."""

    name: str
    documentation: str
    kind: str
    samples: list[Sample]


_Families = Iterable[Metric]


def encoded(families: _Families) -> bytes:
    """For another process."""
    return msgspec.msgpack.encode([_family_of(metric) for metric in families])


def decoded(document: bytes) -> list[Metric]:
    """What ``encoded`` made."""
    return [_metric_of(family) for family in msgspec.msgpack.decode(document, type=list[Family])]


def left_by(documents: Sequence[bytes]) -> bytes:
    """What processes that are gone had counted, all together: it is not to be lost, but they hold nothing any more."""
    return encoded(metric for metric in joined([*map(decoded, documents)]) if metric.type != "gauge")


def joined(processes: Sequence[_Families]) -> list[Metric]:
    """The families of all ``processes``, those of the first in its order."""
    by_name: defaultdict[str, list[Metric]] = defaultdict(list)
    for families in processes:
        for metric in families:
            by_name[metric.name].append(metric)
    return [_join(metrics) for metrics in by_name.values()]


def _join(metrics: list[Metric]) -> Metric:
    first = metrics[0]
    if first.name == _LORAS:
        return _with_loras_of(first, metrics[1:])
    if first.name in _WORST_GAUGES:
        return _combined(metrics, max)
    return _combined(metrics, operator.add) if _is_added(first.name, first.type) else first


def _is_added(name: str, kind: str) -> bool:
    """If not, the first process tells it."""
    if kind == "gauge":
        return name in _ADDED_GAUGES or (name.startswith(_OURS) and name not in _TOLD_ONCE)
    return not name.startswith(_SEEN_BY_ALL)


def _combined(metrics: list[Metric], combine: Callable[[float, float], float]) -> Metric:
    """The values of all ``metrics`` under the same name and labels as one."""
    values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for metric in metrics:
        for sample in metric.samples:
            key = sample.name, frozenset(sample.labels.items())
            values[key] = combine(values[key], sample.value) if key in values else sample.value
    total = Metric(metrics[0].name, metrics[0].documentation, metrics[0].type)
    for (name, labels), value in values.items():
        total.add_sample(name, dict(labels), value)
    return total


def _with_loras_of(first: Metric, others: list[Metric]) -> Metric:
    """Names of adapters stand in labels: which of them run, and which wait, in any process."""
    (sample,) = first.samples
    for name in _LORA_NAMES:
        lists = [found.labels[name] for metric in (first, *others) for found in metric.samples]
        sample.labels[name] = ",".join(sorted({lora for text in lists for lora in text.split(",") if lora}))
    return first


def _family_of(metric: Metric) -> Family:
    samples = [Sample(sample.name, sample.labels, sample.value) for sample in metric.samples]
    return Family(metric.name, metric.documentation, metric.type, samples)


def _metric_of(family: Family) -> Metric:
    metric = Metric(family.name, family.documentation, family.kind)
    for sample in family.samples:
        metric.add_sample(sample.name, sample.labels, sample.value)
    return metric
