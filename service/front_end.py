"""One process's share of the gateway: calls come in, requests go to the cores.

    clients ──▶ Listener ──▶ Gate ──▶ Generator ──▶ EngineClient ──▶ Engines ──▶ cores

To the cores it is a front end: a pair of sockets of its own, and a ``client_index``. A gateway of one process has one.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from core.wire.messages import EngineReadyResponse
from service.admission.admission import Admission, AdmissionLimits
from service.admission.budget import Elsewhere, nowhere
from service.admission.held_message import MAX_HELD_BYTES
from service.admission.read_slots import NUM_SLOTS, ReadSlots
from service.calls.access_log import AccessLog
from service.calls.interceptor import CallInterceptor, CallObserver
from service.config import GatewayConfig, KvEventsConfig
from service.cores.adapters import Adapters
from service.cores.engine import max_cached_tokens
from service.cores.engines import Engines
from service.cores.wave_client import WaveClient
from service.engine_client import EngineClient
from service.gate import Backend, Gate
from service.generator import AbortElsewhere, Generator, nobody_aborts
from service.kv_events.feed import KvEventFeed
from service.listener import PortUse
from service.listeners import PublicListeners
from service.loop_lag import LoopLag
from service.metrics.exposition import Exposition
from service.metrics.kv_events import kv_event_families
from service.metrics.overload import overload_families
from service.metrics.rpcs import RpcMetrics
from service.security.guards import Guards
from service.served_model import ModelText
from service.servicers.edge import ErrorEdge
from service.servicers.health import Health
from service.servicers.inference import InferenceServicer
from service.servicers.kserve.servicer import KServeServicer
from service.servicers.vllm_engine.model_info import ModelCard
from service.servicers.vllm_engine.servicer import VllmEngineServicer
from service.services import CONTROL, INFERENCE, KSERVE, ROUTER_PROBES, VLLM_ENGINE, add_public_services
from service.text.text_threads import TextThreads

_A = TypeVar("_A")
_B = TypeVar("_B")
STOP_GRACE_S = 2.0
"""How long the last answers may take to leave."""
_MIN_REQUESTS = 4
"""Of the largest, where an operator lets them be larger than usual."""
_MIN_HEARTBEAT_TIMEOUT_S = 10.0
"""Longer if a ping may take longer: a core on tcp that is stopped falls silent first, and is lost only later."""


class Cores(Protocol):
    """Who sees to it that there are cores."""

    @property
    def waves(self) -> WaveClient | None:
        """Of cores that step in lockstep, once they are loaded."""

    async def load(self) -> EngineReadyResponse:
        """Return what the cores say of themselves together, once all are ready."""


class FrontEnd:
    """``resources`` are released by whoever owns them: those of this class are put there."""

    def __init__(self, config: GatewayConfig, resources: AsyncExitStack) -> None:
        self._config = config
        self._resources = resources
        self.health = Health([INFERENCE, CONTROL, VLLM_ENGINE, KSERVE])
        self.gate = Gate(self.health)
        self.rpcs = RpcMetrics()
        self.edge = _edge(config)
        self._loop_lag = LoopLag()
        self.kv_events: KvEventFeed | None = None
        self.exposition = Exposition(self.gate, self.rpcs)
        self.calls = CallInterceptor([self.rpcs, AccessLog(), *self._spans()], ROUTER_PROBES)
        self.exposition.add(partial(overload_families, self.edge, self._loop_lag))
        self.elsewhere: Callable[[int], Elsewhere] = nowhere
        """What other front ends hold of what the limits are for."""
        self.abort_elsewhere: AbortElsewhere = nobody_aborts
        """Ends requests that other front ends have."""
        self._listeners: PublicListeners | None = None

    @property
    def listeners(self) -> PublicListeners:
        """Where clients call."""
        assert self._listeners is not None, "listening"
        return self._listeners

    def open_engines(self, input_address: str, output_address: str, client_index: int = 0) -> Engines:
        """Bind the sockets for the cores. Raises EngineAddressError, and CurveError for keys that cannot be used."""
        core = self._config.core
        heartbeat_timeout_s = max(_MIN_HEARTBEAT_TIMEOUT_S, 2 * core.ping_timeout_s)
        engines = Engines(
            *(input_address, output_address, core.data_parallel_size, heartbeat_timeout_s, client_index),
            awaits_successors=core.awaits_successors,
            curve=None if core.curve is None else core.curve.server(),
        )
        self._resources.callback(engines.close)
        engines.on_service = self.gate.set_answering
        return engines

    def follow_kv_events(self, config: KvEventsConfig) -> None:
        """Let clients subscribe to them; to be called before ``listen``. Raises EventAddressError."""
        self.kv_events = KvEventFeed(config, self._config.core.data_parallel_size)
        self._resources.callback(self.kv_events.close)
        self.exposition.add(partial(kv_event_families, self.kv_events))
        self.kv_events.start()

    def end_watches(self) -> None:
        """End the streams that nothing ends but the server."""
        self.health.close()
        if self.kv_events is not None:
            self.kv_events.close()

    async def listen(self, guards: Guards, port_use: PortUse) -> None:
        """Serve what clients call. Raises ListenError, and ModelError for a configuration that cannot be read."""
        self.exposition.add(guards.families)
        self._loop_lag.start()
        self._resources.callback(self._loop_lag.stop)
        text_threads = TextThreads(self._config.limits.max_queued_requests)
        inference = InferenceServicer(self.gate, text_threads, self._config.limits.min_flush_interval_s)
        card = ModelCard.read(self._config.model)
        vllm_engine = VllmEngineServicer(
            self.gate,
            self.health,
            text_threads,
            card,
            has_own_cores=self._config.core.is_local,
            min_flush_interval_s=self._config.limits.min_flush_interval_s,
            abort_elsewhere=self.abort_elsewhere,
            kv_events=self.kv_events,
        )
        listen, connections = self._config.listen, self._config.connections
        kserve = KServeServicer(self.gate, self.health, text_threads, self._config.limits.min_flush_interval_s)
        listeners = self._listeners = PublicListeners(listen, connections, guards, self.calls, self.edge, port_use)
        for server in listeners.servers:
            add_public_services(server, inference, vllm_engine, kserve, self.health)
        self._resources.push_async_callback(listeners.stop, STOP_GRACE_S)
        listeners.bind()
        await listeners.start()

    async def load(self, engines: Engines, cores: Cores) -> Backend:
        """What is behind the gate. The tokenizer is read while the cores load; the first failure is raised as it is."""
        # The cores first: they take longest, and reading the tokenizer leaves this thread little of the interpreter.
        engine_info, text = await _together(cores.load(), asyncio.to_thread(ModelText.load, self._config.model))
        model = text.served_by(engine_info, self._config.max_model_len, self._config.limits.max_logprobs)
        smallest = min(max_cached_tokens(engine.response) for engine in engines.all if engine.response is not None)
        given = self._config.limits
        limits = AdmissionLimits(given.max_queued_requests, smallest, given.max_queued_tokens)
        client = EngineClient(engines, cores.waves, self._config.core.restart_wait_s)
        adapters = Adapters(client, model.name)
        self.calls.model_name = model.name
        named = replace(model, adapters=adapters.by_name)
        admission = Admission(limits, lambda: engines.num_waiting, self.elsewhere)
        return Backend(named, client, engine_info, Generator(client, model.tokenizer, admission), adapters)

    def _spans(self) -> Iterator[CallObserver]:
        if self._config.tracing.endpoint:
            from service.tracing.tracing import Tracing

            tracing = Tracing(self._config.tracing.endpoint)
            self._resources.push_async_callback(asyncio.to_thread, tracing.close, STOP_GRACE_S)
            self.exposition.add(tracing.families)
            yield tracing.spans


def _edge(config: GatewayConfig) -> ErrorEdge:
    """Of the largest requests there may be as many under way, and as many held, as MAX_HELD_BYTES has room for."""
    largest = config.connections.max_message_bytes
    max_held_bytes = max(MAX_HELD_BYTES, _MIN_REQUESTS * largest)
    num_slots = min(max_held_bytes // largest, NUM_SLOTS)
    return ErrorEdge(config.limits.write_stall_timeout_s, max_held_bytes, ReadSlots(num_slots))


async def _together(first: Coroutine[Any, Any, _A], second: Coroutine[Any, Any, _B]) -> tuple[_A, _B]:
    """Both results. The first failure cancels the other and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = group.create_task(first), group.create_task(second)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return tasks[0].result(), tasks[1].result()
