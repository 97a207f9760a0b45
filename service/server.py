"""The gateway process from start to stop.

    start   bind every address; NOT_SERVING, calls get UNAVAILABLE: whoever waits for us can see us already
            load the tokenizer and the core; any failure ends the process
            ready: one log line, SERVING
    leave   NOT_SERVING at once; new calls are served for the lame-duck time, if there is any
    drain   new calls get UNAVAILABLE; running requests finish, or are aborted at the time-out
    stop    last answers leave, the core ends and is reaped, sockets and the private folder are removed

The exit code is 0 when a signal ends a server that was ready, and 1 otherwise.
"""

import asyncio
import logging
import time
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import uvloop

from core.wire.curve import CurveError
from service.config import CoreConfig, GatewayConfig
from service.cores.adapters import AdapterError
from service.cores.core_process import CoreLoadError
from service.cores.engine_sockets import EngineAddressError
from service.cores.engines import Engines
from service.front_end import STOP_GRACE_S, FrontEnd
from service.garbage import spare_collector
from service.gate import Backend, Closed
from service.generator import Generator
from service.kv_events.event_sockets import EventAddressError
from service.listener import ListenError, PortUse
from service.listeners import admin_listener, health_listener
from service.metrics.endpoint import MetricsEndpoint
from service.metrics.engine_state import engine_state_families
from service.metrics.readiness import readiness_families
from service.models import ModelError
from service.private_folder import FolderError, private_folder
from service.security.exposure import exposures
from service.security.guards import Guards
from service.security.watched_files import SecurityFileError
from service.servicers.control import ControlServicer
from service.services import add_admin_services, add_health_service
from service.shutdown_signals import ShutdownSignals, done_before
from service.supervisor import Supervisor
from service.workers.methods import Opening
from service.workers.process import WorkerError
from service.workers.team import Team

logger = logging.getLogger(__name__)

START_ERRORS = (
    AdapterError,
    FolderError,
    EngineAddressError,
    EventAddressError,
    ListenError,
    ModelError,
    CoreLoadError,
    SecurityFileError,
    CurveError,
    WorkerError,
)
"""Not our bugs: one line says what is wrong."""


def run(config: GatewayConfig) -> int:
    """Serve until a signal or the loss of the core, and return the exit code."""
    return uvloop.run(serve(config))


async def serve(config: GatewayConfig) -> int:
    """As ``run``, on the running event loop."""
    server = GatewayServer(config)
    try:
        has_drained = await _serve(server, ShutdownSignals())
    except START_ERRORS as error:
        logger.error("%s", error)
        has_drained = False
    finally:
        await server.stop()
    # Only now: how a core ended whose connection was closed is known when its process is reaped.
    return int(not has_drained or server.core_has_failed)


async def _serve(server: "GatewayServer", signals: ShutdownSignals) -> bool:
    """Until a signal or the loss of the core. Whether it was a signal, to a server that was ready."""
    if not await done_before(signals.first, server.start()):
        logger.warning("stopped while loading")
        return False
    spare_collector()
    await done_before(signals.first, server.until_core_lost())
    if not signals.first.is_set():
        await done_before(signals.first, server.finish_without_core())
        return False
    if not await done_before(signals.second, server.leave()):
        await server.drain(timeout_s=0)
    return True


class GatewayServer:
    """One gateway: ``start`` it, ``drain`` it, and in any case ``stop`` it."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._resources = AsyncExitStack()
        self._front_end = FrontEnd(config, self._resources)
        self._gate = self._front_end.gate
        self._metrics = MetricsEndpoint(self._front_end.exposition.text)
        self._admin_addresses: list[str] = []
        self.listening = asyncio.Event()
        """Set when clients can connect, loaded or not."""
        self._stopping = asyncio.Event()
        self._engines: Engines | None = None
        self._supervisor: Supervisor | None = None
        self._team: Team | None = None

    @property
    def grpc_addresses(self) -> list[str]:
        """Where the public services are served, with the real ports."""
        return self._front_end.listeners.addresses

    @property
    def admin_address(self) -> str:
        return self._admin_addresses[0]

    @property
    def metrics_address(self) -> str:
        """``HOST:PORT``, or empty if there are none."""
        return self._metrics.address

    @property
    def generator(self) -> Generator:
        """The requests that run in this process. Raises Unavailable before there is a core."""
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
        engines = self._engines = self._front_end.open_engines(*self._config.core.socket_addresses(folder))
        core = self._publishing_core(folder)
        team = self._team = Team(self._config, folder, engines, self._gate)
        self._gate.on_asleep = team.tell_asleep
        self._front_end.exposition.ask_others = team.metrics
        self._front_end.exposition.add(team.families)
        self._front_end.elsewhere = team.elsewhere
        self._front_end.abort_elsewhere = team.abort
        supervisor = self._supervisor = Supervisor(core, engines, folder, team)
        self._resources.push_async_callback(supervisor.stop)
        self._resources.push_async_callback(team.stop)
        await self._listen(team)
        await team.start(self._front_end.listeners.bound)
        backend = await self._front_end.load(engines, supervisor)
        await backend.adapters.load_all(self._config.lora_modules)
        await team.open(lambda: self._opening(backend, supervisor))
        self._gate.open(backend)
        seconds = time.monotonic() - start_time
        logger.info("ready grpc=%s model=%s seconds=%.1f", ",".join(self.grpc_addresses), backend.model.name, seconds)

    async def until_core_lost(self) -> None:
        """Return when a core, all that ran on it having failed by then, or a worker is gone."""
        assert self._engines is not None, "started"
        assert self._team is not None, "started"
        core_lost, worker_lost = self._engines.lost, self._team.lost
        await asyncio.wait({core_lost, worker_lost}, return_when=asyncio.FIRST_COMPLETED)
        if core_lost.done():
            logger.error("the engine core is gone: %s", core_lost.result())
            self._gate.close(Closed.CORE_LOST)
        else:
            logger.error("the gateway cannot go on: %s", worker_lost.result())

    async def finish_without_core(self) -> None:
        """After the loss of one core or worker let the others end what they run, at most the drain time-out."""
        assert self._engines is not None, "started"
        if self._engines.alive:
            await self.drain()

    async def leave(self) -> None:
        """Be a lame duck, so that no call is refused by those who balance load and watch health; then drain.

        At once when nothing is served any more: a core is lost for good, or an operator has called Drain.
        """
        assert self._team is not None, "started"
        if lame_duck_s := self._config.limits.lame_duck_s:
            self._gate.be_lame_duck()
            await self._team.be_lame_duck()
            logger.info("NOT_SERVING; new requests are served for another %g s", lame_duck_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(lame_duck_s):
                    await done_before(self._gate.closed_for_good, self.until_core_lost())
        await self.drain()

    async def drain(self, timeout_s: float | None = None) -> None:
        """Refuse new requests and wait for those that run; what is left after ``timeout_s`` is aborted.

        None: the drain time-out.
        """
        assert self._team is not None, "started"
        if timeout_s is None:
            timeout_s = self._config.limits.drain_timeout_s
        num_aborted = sum(await asyncio.gather(self._gate.drain(timeout_s), self._team.drain(timeout_s)))
        logger.info("drained, %d requests aborted", num_aborted)

    async def stop(self) -> None:
        """Let the last answers leave, then release everything. Nothing of the gateway is left behind."""
        self._stopping.set()
        self._front_end.end_watches()
        await self._resources.aclose()

    def _publishing_core(self, folder: Path) -> CoreConfig:
        """The cores' configuration, which may have to tell them where to publish: they are followed from now on."""
        config, core = self._config.kv_events, self._config.core
        if config is None:
            return core
        placed = config.placed_in(folder)
        self._front_end.follow_kv_events(placed)
        return core.with_flags(*placed.core_flags) if config.is_private else core

    def _opening(self, backend: Backend, supervisor: Supervisor) -> Opening:
        """How things stand for a worker that begins to serve now."""
        return Opening([*backend.model.adapters.values()], self._gate.is_asleep, supervisor.waves_address)

    async def _listen(self, team: Team) -> None:
        guards = Guards(self._config.security)
        for exposure in exposures(self._config.listen, self._config.security):
            logger.warning(exposure)
        await self._front_end.listen(guards, PortUse.FIRST if self._config.workers.is_shared else PortUse.ALONE)
        await self._listen_for_operators(guards, team)
        if self._config.listen.health_address:
            await self._listen_for_probes(self._config.listen.health_address)
        if self._config.listen.metrics_address:
            await self._metrics.start(self._config.listen.metrics_address)
            self._resources.push_async_callback(self._metrics.stop)
        self.listening.set()
        metrics = f"metrics on http://{self.metrics_address}/metrics" if self.metrics_address else "no metrics"
        addresses = ", ".join(self.grpc_addresses), self.admin_address, metrics
        logger.info("listening on %s, admin on %s; %s; loading", *addresses)

    async def _listen_for_probes(self, address: str) -> None:
        front_end = self._front_end
        health = health_listener(self._config.listen, self._config.connections, front_end.calls, front_end.edge)
        self._resources.push_async_callback(health.stop, STOP_GRACE_S)
        add_health_service(health.server, front_end.health)
        health.bind(address, "--health-address")
        await health.server.start()
        logger.info("health on %s", health.addresses[0])

    async def _listen_for_operators(self, guards: Guards, team: Team) -> None:
        listen, connections, calls = self._config.listen, self._config.connections, self._front_end.calls
        admin = admin_listener(listen, connections, guards, calls, self._front_end.edge)
        self._resources.push_async_callback(admin.stop, STOP_GRACE_S)
        drain_timeout_s, kv_events = self._config.limits.drain_timeout_s, self._front_end.kv_events
        control = ControlServicer(self._gate, team, self.grpc_addresses, drain_timeout_s, self._stopping, kv_events)
        self._front_end.exposition.add(partial(readiness_families, self._front_end.health))
        self._front_end.exposition.add(partial(engine_state_families, self._gate, control.engine_state))
        add_admin_services(admin.server, control, self._front_end.health)
        admin.bind(self._config.listen.admin_address, "--admin-address")
        await admin.server.start()
        self._admin_addresses = admin.addresses
