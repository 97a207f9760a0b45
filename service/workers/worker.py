"""A worker process: a front end that does what the primary says, and ends with it."""

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

from core.wire.messages import EngineReadyResponse, LoRARequest
from service.admission.admission import NUM_BUDGETS
from service.config import CurveFiles
from service.cores.engines import Engines
from service.cores.wave_client import WaveClient
from service.engine_client import EngineClient
from service.errors import ServiceError
from service.front_end import STOP_GRACE_S, FrontEnd
from service.garbage import spare_collector
from service.gate import Backend
from service.listener import PortUse
from service.security.guards import Guards
from service.servicers.load import load_of
from service.shutdown_signals import ShutdownSignals, done_before
from service.workers import methods
from service.workers.channel import CallError, Channel, ChannelClosedError, Handlers
from service.workers.core_loads import CoreLoad, adopt, loads_of
from service.workers.methods import CoreLoss, Farewell, Opening, Report
from service.workers.settings import WorkerSettings
from service.workers.shared_counts import SharedCounts

logger = logging.getLogger(__name__)

_MEETING_TIMEOUT_S = 30.0
_MEETING_INTERVAL_S = 0.05
"""A core connects again within some tenths of a second."""


async def work(channel_end: socket.socket, counts_fd: int) -> int:
    """Serve until the primary hangs up, or a signal has this process drained. The exit code."""
    signals, worker = ShutdownSignals(), Worker(counts_fd)
    channel = await Channel.over(channel_end, worker.handlers)
    worker.channel = channel
    try:
        if not await done_before(signals.first, channel.closed.wait()):
            await done_before(channel.closed, done_before(signals.second, worker.leave()))
    finally:
        await worker.stop()
        await channel.close()
    return 0


class ElsewhereCores:
    """The cores that the primary sees to."""

    def __init__(self, engines: Engines, curve: CurveFiles | None) -> None:
        self.engines = engines
        self._curve = curve
        self.opening: asyncio.Future[Opening] = asyncio.get_running_loop().create_future()
        """Resolved when the primary says that they are ready."""
        self.waves: WaveClient | None = None

    async def load(self) -> EngineReadyResponse:
        """When the primary has said so, and each has introduced itself."""
        opening = await self.opening
        for rank, response in enumerate(opening.cores):
            self.engines.meet(rank, response)
        if opening.waves_address is not None:
            curve = None if self._curve is None else self._curve.server().itself_as_client
            self.waves = WaveClient(opening.waves_address, curve)
        return await asyncio.shield(self.engines.ready)

    def close(self) -> None:
        if self.waves is not None:
            self.waves.close()


@dataclass(frozen=True)
class _Share:
    """This process's share of the gateway, once it was told what that is."""

    settings: WorkerSettings
    front_end: FrontEnd
    engines: Engines
    cores: ElsewhereCores
    loading: asyncio.Task[Backend]

    @property
    def backend(self) -> Backend:
        """Raises Unavailable before it is opened."""
        return self.front_end.gate.look_in()


class Worker:
    """``handlers`` are what the primary calls: PREPARE, then OPEN, then any. ``counts_fd``: of ``SharedCounts``."""

    def __init__(self, counts_fd: int) -> None:
        self._counts_fd = counts_fd
        self._resources = AsyncExitStack()
        self._share: _Share | None = None
        self._opened = asyncio.Event()
        self.channel: Channel | None = None
        """To the primary."""
        self.handlers: Handlers = {
            methods.PREPARE: self._prepare,
            methods.OPEN: self._open,
            methods.SET_ASLEEP: self._set_asleep,
            methods.SET_ADAPTERS: self._set_adapters,
            methods.LOSE_CORE: self._lose_core,
            methods.EXPECT_CORE: self._expect_core,
            methods.GIVE_UP_CORE: self._give_up_core,
            methods.BE_LAME_DUCK: self._be_lame_duck,
            methods.DRAIN: self._drain,
            methods.ABORT: self._abort,
            methods.FORGET_PREFIXES: self._forget_prefixes,
            methods.EXCHANGE_CORE_LOADS: self._exchange_core_loads,
            methods.REPORT_LOAD: self._report_load,
            methods.REPORT_METRICS: self._report_metrics,
        }

    @property
    def _mine(self) -> _Share:
        assert self._share is not None, "prepared"
        return self._share

    @property
    def _backend(self) -> Backend | None:
        """None while it is being opened: what it is told by then is of things that it does not have yet."""
        return self._mine.backend if self._opened.is_set() else None

    async def leave(self) -> None:
        """Send clients to other processes, and wait for what runs, at most the drain time-out."""
        if (share := self._share) is not None:
            share.front_end.end_watches()
            timeout_s = share.settings.config.limits.drain_timeout_s
            closing = asyncio.ensure_future(share.front_end.listeners.stop(timeout_s + STOP_GRACE_S))
            await share.front_end.gate.drain(timeout_s)
            await closing
            await self._say_farewell(share)

    async def _say_farewell(self, share: _Share) -> None:
        with suppress(ServiceError, ChannelClosedError, CallError):
            load = load_of(share.backend).SerializeToString()
            farewell = Farewell(load, await share.front_end.exposition.encoded())
            assert self.channel is not None, "it has told us to serve"
            await self.channel.call(methods.FAREWELL, farewell)

    async def stop(self) -> None:
        """Let the last answers leave, then release everything."""
        if (share := self._share) is not None:
            share.loading.cancel()
            share.front_end.end_watches()
        await self._resources.aclose()

    async def _prepare(self, text: str) -> None:
        settings = WorkerSettings.from_json(text)
        front_end = FrontEnd(settings.config, self._resources)
        front_end.abort_elsewhere = self._abort_elsewhere
        num_processes = settings.config.workers.num_workers
        front_end.elsewhere = SharedCounts(self._counts_fd, num_processes, NUM_BUDGETS, settings.number).column
        (input_address,), (output_address,) = settings.addresses.inputs, settings.addresses.outputs
        engines = front_end.open_engines(input_address, output_address, settings.number)
        if settings.config.kv_events is not None:
            front_end.follow_kv_events(settings.config.kv_events)
        cores = ElsewhereCores(engines, settings.config.core.curve)
        self._resources.callback(cores.close)
        loading = asyncio.ensure_future(front_end.load(engines, cores))
        self._share = _Share(settings, front_end, engines, cores, loading)

    async def _open(self, opening: Opening) -> None:
        share = self._mine
        # At once: what is told from now on is news, though all this takes its time.
        share.front_end.gate.set_asleep(opening.is_asleep)
        share.cores.opening.set_result(opening)
        backend = await share.loading
        if opening.cores:
            await _until_heard(share.engines, backend.engine)
        await backend.adapters.mirror(opening.adapters)
        share.front_end.gate.open(backend)
        self._opened.set()
        await share.front_end.listen(Guards(share.settings.config.security), PortUse.JOIN)
        spare_collector()
        logger.info("gateway worker %d is ready", share.settings.number)

    async def _set_asleep(self, is_asleep: bool) -> None:
        self._mine.front_end.gate.set_asleep(is_asleep)

    async def _set_adapters(self, loras: list[LoRARequest]) -> None:
        await self._opened.wait()  # until it has those that it began with
        await self._mine.backend.adapters.mirror(loras)

    async def _lose_core(self, loss: CoreLoss) -> None:
        self._mine.engines.lose_core(loss.rank, loss.reason)

    async def _expect_core(self, rank: int) -> None:
        self._mine.engines.expect_successor(rank)

    async def _give_up_core(self, loss: CoreLoss) -> None:
        self._mine.engines.give_up(loss.rank, loss.reason)

    async def _be_lame_duck(self, _: None) -> None:
        self._mine.front_end.gate.be_lame_duck()

    async def _drain(self, timeout_s: float) -> int:
        return await self._mine.front_end.gate.drain(timeout_s)

    async def _abort_elsewhere(self, request_ids: Sequence[str]) -> int:
        assert self.channel is not None, "it has told us to serve"
        return await self.channel.call(methods.ABORT_ANYWHERE, [*request_ids])

    async def _abort(self, request_ids: list[str]) -> int:
        backend = self._backend
        return 0 if backend is None else backend.generator.abort(request_ids)

    async def _forget_prefixes(self, _: None) -> None:
        if (backend := self._backend) is not None:
            backend.engine.forget_prefixes()

    async def _exchange_core_loads(self, loads: list[CoreLoad]) -> list[CoreLoad]:
        engines = self._mine.engines.all
        adopt(engines, loads)
        return loads_of(engines)

    async def _report_load(self, _: None) -> Report:
        core_loads, backend = loads_of(self._mine.engines.all), self._backend
        return Report(core_loads) if backend is None else Report(core_loads, load_of(backend).SerializeToString())

    async def _report_metrics(self, _: None) -> Report:
        return Report(loads_of(self._mine.engines.all), await self._mine.front_end.exposition.encoded())


async def _until_heard(engines: Engines, client: EngineClient) -> None:
    """Return when every core has answered. Raises TimeoutError.

    They serve this front end already, as they know it, and what they still do for the process before it is to end.
    """
    client.ends_strangers = True
    async with asyncio.timeout(_MEETING_TIMEOUT_S):
        while unheard := [engine for engine in engines.alive if engine.heard_at is None]:
            for engine in unheard:
                engines.ask(engine)
            await asyncio.sleep(_MEETING_INTERVAL_S)
