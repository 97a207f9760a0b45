"""The gateway process from start to stop.

    start   bind every address; NOT_SERVING, calls get UNAVAILABLE: whoever waits for us can see us already
            load the tokenizer and the core; any failure ends the process
            ready: one log line, SERVING
    drain   NOT_SERVING at once, new calls get UNAVAILABLE; running requests finish, or are aborted at the time-out
    stop    last answers leave, the core ends and is reaped, sockets and the private folder are removed

The exit code is 0 when a signal ends a server that was ready, and 1 otherwise.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from service.adapters import AdapterError, Adapters
from service.admission import Admission, AdmissionLimits
from service.config import GatewayConfig
from service.core_process import CoreLoadError
from service.engine import max_cached_tokens
from service.engine_client import EngineClient
from service.engine_sockets import EngineAddressError
from service.engines import Engines
from service.gate import Backend, Closed, Gate
from service.generator import Generator
from service.listener import Listener, ListenError
from service.metrics.endpoint import MetricsEndpoint
from service.metrics.exposition import Exposition
from service.metrics.rpcs import RpcMetrics
from service.models import ModelError
from service.private_folder import FolderError, private_folder
from service.served_model import ModelText
from service.servicers.control import ControlServicer
from service.servicers.health import Health
from service.servicers.inference import InferenceServicer
from service.services import CONTROL, INFERENCE, add_admin_services, add_public_services
from service.supervisor import Supervisor
from service.text_threads import TextThreads

logger = logging.getLogger(__name__)

_A = TypeVar("_A")
_B = TypeVar("_B")
START_ERRORS = AdapterError, FolderError, EngineAddressError, ListenError, ModelError, CoreLoadError
"""Not our bugs: one line says what is wrong."""
_STOP_GRACE_S = 2.0
"""How long the last answers may take to leave."""
_MIN_HEARTBEAT_TIMEOUT_S = 10.0
"""Longer if a ping may take longer: a core on tcp that is stopped falls silent first, and is lost only later."""


def run(config: GatewayConfig) -> int:
    """Serve until a signal or the loss of the core, and return the exit code."""
    return uvloop.run(serve(config))


async def serve(config: GatewayConfig) -> int:
    """As ``run``, on the running event loop."""
    signals = ShutdownSignals()
    server = GatewayServer(config)
    try:
        if not await _done_before(signals.first, server.start()):
            logger.warning("stopped while loading")
            return 1
        await _done_before(signals.first, server.until_core_lost())
        if not signals.first.is_set():
            await _done_before(signals.first, server.finish_without_core())
            return 1
        if not await _done_before(signals.second, server.drain()):
            server.generator.abort_all()
        return int(server.core_has_failed)
    except START_ERRORS as error:
        logger.error("%s", error)
        return 1
    finally:
        await server.stop()


class ShutdownSignals:
    """SIGTERM, SIGINT and, when the terminal closes, SIGHUP: ``first`` asks for a drain, ``second`` for haste."""

    def __init__(self) -> None:
        self.first, self.second = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._receive, number)

    def _receive(self, number: signal.Signals) -> None:
        logger.info("%s received: %s", number.name, "stopping now" if self.first.is_set() else "draining")
        (self.second if self.first.is_set() else self.first).set()


async def _done_before(interruption: asyncio.Event, work: Coroutine[Any, Any, Any]) -> bool:
    """Whether ``work`` was done before ``interruption`` was set, which cancels it. Raises what ``work`` raises."""
    task, interrupted = asyncio.ensure_future(work), asyncio.ensure_future(interruption.wait())
    try:
        await asyncio.wait({task, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return task.done()
    finally:
        interrupted.cancel()
        task.cancel()
        await asyncio.wait({task, interrupted})


class GatewayServer:
    """One gateway: ``start`` it, ``drain`` it, and in any case ``stop`` it."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._health = Health([INFERENCE, CONTROL])
        self._gate = Gate(self._health)
        rpcs = RpcMetrics()
        self._public = Listener(interceptors=[rpcs])
        self._admin = Listener([("grpc.enable_channelz", 1)], [rpcs])
        self._metrics = MetricsEndpoint(Exposition(self._gate, rpcs).text)
        self.listening = asyncio.Event()
        """Set when clients can connect, loaded or not."""
        self._stopping = asyncio.Event()
        self._resources = AsyncExitStack()
        self._engines: Engines | None = None
        self._supervisor: Supervisor | None = None

    @property
    def grpc_addresses(self) -> list[str]:
        """Where the public services are served, with the real ports."""
        return self._public.addresses

    @property
    def admin_address(self) -> str:
        return self._admin.addresses[0]

    @property
    def metrics_address(self) -> str:
        """``HOST:PORT``, or empty if there are none."""
        return self._metrics.address

    @property
    def generator(self) -> Generator:
        """The requests that run. Raises Unavailable before there is a core."""
        return self._gate.look_in().generator

    @property
    def core_has_failed(self) -> bool:
        """A core is lost. Not if it has shut down as it should: a signal that ends this process may reach it too."""
        assert self._supervisor is not None, "started"
        return self._supervisor.a_core_has_failed

    async def start(self) -> None:
        """Listen, load, let calls in. Raises one of ``START_ERRORS``."""
        start_time = time.monotonic()
        folder = self._resources.enter_context(private_folder())
        engines = self._engines = self._open_engines(folder)
        supervisor = self._supervisor = Supervisor(self._config.core, engines, folder)
        self._resources.push_async_callback(supervisor.stop)
        await self._listen()
        backend = await self._load(engines, supervisor)
        self._gate.open(backend)
        seconds = time.monotonic() - start_time
        logger.info("ready grpc=%s model=%s seconds=%.1f", ",".join(self.grpc_addresses), backend.model.name, seconds)

    async def until_core_lost(self) -> None:
        """Return when a core is gone. All that ran on it has failed by then, and no new call is let in."""
        assert self._engines is not None, "started"
        reason = await asyncio.shield(self._engines.lost)
        logger.error("the engine core is gone: %s", reason)
        self._gate.close(Closed.CORE_LOST)

    async def finish_without_core(self) -> None:
        """After the loss of one core let the others end what they run, at most the drain time-out."""
        assert self._engines is not None, "started"
        if self._engines.alive:
            await self.drain()

    async def drain(self) -> None:
        """Refuse new requests and wait for those that run, at most the drain time-out; what is left then is aborted."""
        num_aborted = await self._gate.drain(self._config.limits.drain_timeout_s)
        logger.info("drained, %d requests aborted", num_aborted)

    async def stop(self) -> None:
        """Let the last answers leave, then release everything. Nothing of the gateway is left behind."""
        self._stopping.set()
        self._health.close()
        await self._resources.aclose()

    async def _listen(self) -> None:
        control = ControlServicer(self._gate, self.grpc_addresses, self._config.limits.drain_timeout_s, self._stopping)
        inference = InferenceServicer(self._gate, TextThreads(self._config.limits.max_queued_requests))
        add_public_services(self._public.server, inference, self._health)
        add_admin_services(self._admin.server, control, self._health)
        for listener in (self._public, self._admin):
            self._resources.push_async_callback(listener.stop, _STOP_GRACE_S)
        for address in self._config.listen.grpc_addresses:
            self._public.bind(address)
        self._admin.bind(self._config.listen.admin_address)
        for listener in (self._public, self._admin):
            await listener.server.start()
        if self._config.listen.metrics_address:
            await self._metrics.start(self._config.listen.metrics_address)
            self._resources.push_async_callback(self._metrics.stop)
        self.listening.set()
        metrics = f"metrics on http://{self.metrics_address}/metrics" if self.metrics_address else "no metrics"
        addresses = ", ".join(self.grpc_addresses), self.admin_address, metrics
        logger.info("listening on %s, admin on %s; %s; loading", *addresses)

    def _open_engines(self, folder: Path) -> Engines:
        core = self._config.core
        heartbeat_timeout_s = max(_MIN_HEARTBEAT_TIMEOUT_S, 2 * core.ping_timeout_s)
        engines = Engines(*core.socket_addresses(folder), core.data_parallel_size, heartbeat_timeout_s)
        self._resources.callback(engines.close)
        engines.on_silence = lambda are_silent: self._gate.set_answering(not are_silent)
        return engines

    async def _load(self, engines: Engines, supervisor: Supervisor) -> Backend:
        """The tokenizer is read while the core loads."""
        text, engine_info = await _together(asyncio.to_thread(ModelText.load, self._config.model), supervisor.load())
        model = text.served_by(engine_info, self._config.max_model_len, self._config.limits.max_logprobs)
        smallest = min(max_cached_tokens(engine.response) for engine in engines.all if engine.response is not None)
        given = self._config.limits
        limits = AdmissionLimits(given.max_queued_requests, smallest, given.max_queued_tokens)
        client = EngineClient(engines, supervisor.waves)
        adapters = Adapters(client, model.name)
        await adapters.load_all(self._config.lora_modules)
        named = replace(model, adapters=adapters.by_name)
        return Backend(named, client, engine_info, Generator(client, model.tokenizer, Admission(limits)), adapters)


async def _together(first: Coroutine[Any, Any, _A], second: Coroutine[Any, Any, _B]) -> tuple[_A, _B]:
    """Both results. The first failure cancels the other and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = group.create_task(first), group.create_task(second)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return tasks[0].result(), tasks[1].result()
