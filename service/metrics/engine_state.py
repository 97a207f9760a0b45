"""What operators have done to the engine, as gauges: it looks idle in all other ones."""

from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from service.cores.engine_control import EngineState
from service.errors import Unavailable
from service.gate import Gate

_LABELS = ["model_name", "engine"]
_SLEEP_STATES = "awake", "weights_offloaded", "discard_all"
"""By level."""


def engine_state_families(gate: Gate, state: EngineState) -> Iterator[Metric]:
    """None before there is an engine."""
    try:
        backend = gate.look_in()
    except Unavailable:
        return
    asleep = GaugeMetricFamily("vllm:engine_sleep_state", "1: it is so.", labels=[*_LABELS, "sleep_state"])
    paused = GaugeMetricFamily("sluicegate:scheduler_paused", "1: it schedules nothing.", labels=_LABELS)
    for engine in backend.engine.engines.all:
        labels = [backend.model.name, str(engine.rank)]
        for level, name in enumerate(_SLEEP_STATES):
            asleep.add_metric([*labels, name], level == state.sleep_level)
        paused.add_metric(labels, state.is_paused)
    yield asleep
    yield paused
