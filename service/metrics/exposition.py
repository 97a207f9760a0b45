"""Everything counted in one server, as Prometheus reads it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.errors import Unavailable
from service.gate import Backend, Gate
from service.metrics.families import EngineReport, engine_families, lora_family
from service.metrics.families_of_processes import decoded, encoded, joined
from service.metrics.resumption import resumption_families
from service.metrics.rpcs import RpcMetrics


class Exposition:
    """Reads the counts where they are kept. Nothing here is shared with another server of the process."""

    def __init__(self, gate: Gate, rpcs: RpcMetrics) -> None:
        self._gate = gate
        self._sources: list[Callable[[], Iterable[Metric]]] = [rpcs.families]
        self.ask_others: Callable[[], Awaitable[Sequence[bytes]]] = _nobody
        """What other processes of the gateway have ``encoded``, to be added to what this one has counted."""
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    def add(self, families: Callable[[], Iterable[Metric]]) -> None:
        """Ask this for more each time."""
        self._sources.append(families)

    async def text(self) -> bytes:
        """In the text format 0.0.4. The counts are read at once, on the event loop; the text is made in a thread."""
        others = await self.ask_others()
        return await asyncio.to_thread(_rendered, [*self.families()], self._process, others)

    async def encoded(self) -> bytes:
        """For another process of the gateway, which adds it to its own."""
        return await asyncio.to_thread(_encoded, [*self.families()], self._process)

    def families(self) -> Iterator[Metric]:
        """Those of the calls and whatever was added; when there is a model, those of its cores."""
        for source in self._sources:
            yield from source()
        with suppress(Unavailable):
            yield from _backend_families(self._gate.look_in())


class _Snapshot(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


async def _nobody() -> Sequence[bytes]:
    return ()


def _rendered(families: list[Metric], process: CollectorRegistry, others: Sequence[bytes]) -> bytes:
    if others:
        families = joined([[*families, *process.collect()], *map(decoded, others)])
    snapshot = CollectorRegistry()
    snapshot.register(_Snapshot(families))
    return generate_latest(snapshot) + (b"" if others else generate_latest(process))


def _encoded(families: list[Metric], process: CollectorRegistry) -> bytes:
    return encoded([*families, *process.collect()])


def _backend_families(backend: Backend) -> Iterator[Metric]:
    engine, generator = backend.engine, backend.generator
    reports = {
        core.rank: EngineReport(core.response, core.stats, engine.requests.totals[core.rank])
        for core in engine.engines.all
        if core.response is not None
    }
    yield from engine_families(backend.model.name, reports)
    if (max_loras := backend.engine_info.max_loras) or backend.model.adapters:
        yield lora_family(max_loras or 0, engine.requests.running_loras, engine.requests.waiting_loras)
    yield GaugeMetricFamily("sluicegate:live_requests", "Requests taken on and not ended.", generator.num_requests)
    yield GaugeMetricFamily("sluicegate:live_sequences", "Sequences of the live requests.", generator.num_sequences)
    text = "Prompt tokens of the live sequences."
    yield GaugeMetricFamily("sluicegate:live_prompt_tokens", text, generator.admission.num_prompt_tokens)
    merged = engine.num_coalesced_outputs
    yield CounterMetricFamily(
        "sluicegate:coalesced_deltas", "Deltas merged because the client read too slowly.", merged
    )
    yield from resumption_families(engine.engines, engine.resumption)
