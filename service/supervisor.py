"""The life of the cores as the gateway sees it: start, load, watch, replace, stop.

    gateway ── spawn ──▶ core            see ``service.cores.child_process``
            ◀── HELLO, INIT, READY ──▶   core.wire.handshake
            ── a question when it is quiet ──▶   ``Engines.beat``
            ── spawn ──▶ coordinator     of cores that step in lockstep; with it all of them are lost

A core that is lost is replaced: see ``service.cores.replacement``. Not in lockstep, where nobody can take over:
the ranks have met, and cannot go on without the one that is gone.

With an address that others know too the one child is not a core: it brings up those of this machine, which dial the
address as those of other machines do. See ``service.cores.vllm_engine``.

A core on another machine has no process here: its going is noticed on the connection. Another that says HELLO takes
its place, even before that.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

from core.wire.codec import Encoder
from core.wire.handshake import HandshakeError, HandshakeServer
from core.wire.messages import EngineAddresses, EngineInit, EngineReadyResponse
from core.wire.tensor_ipc import TensorSender, tensor_channel
from service.config import CoreConfig
from service.cores.core_process import CoreLoadError, CoreProcess
from service.cores.engine import Engine
from service.cores.engines import Engines
from service.cores.lockstep import Lockstep
from service.cores.pulse import BEATS_PER_TIMEOUT
from service.cores.replacement import Followers, Replacement
from service.cores.wave_client import WaveClient

logger = logging.getLogger(__name__)


class OtherFrontEnds(Followers, Protocol):
    """Processes of this gateway that have the same cores."""

    @property
    def addresses(self) -> Sequence[EngineAddresses]:
        """Where each listens."""

    async def expect_core(self, rank: int) -> None:
        """As ``Engines.expect_successor``. The core is told to come when this returns."""


class NoOthers:
    """The gateway is one process."""

    addresses: Sequence[EngineAddresses] = ()

    async def expect_core(self, rank: int) -> None: ...

    async def lose_core(self, rank: int, reason: str) -> None: ...

    async def give_up_core(self, rank: int, reason: str) -> None: ...


class Supervisor:
    """Gets the cores of ``engines``, tells ``engines`` when one is gone, and gets others."""

    def __init__(
        self, config: CoreConfig, engines: Engines, folder: Path, others: "OtherFrontEnds | None" = None
    ) -> None:
        """``folder`` is private to this gateway; the handshake socket of local cores lies in it.

        ``others``: of this gateway, which have the same cores.
        """
        self._others = others or NoOthers()
        self._addresses = joined([engines.addresses, *self._others.addresses])
        self._config = config
        self._engines = engines
        self._handshake_address = config.handshake_address or f"ipc://{folder}/handshake"
        self._processes: dict[int, CoreProcess] = {}
        self._lockstep = Lockstep(config, folder) if config.is_lockstep else None
        self._resources = AsyncExitStack()

    @property
    def waves(self) -> WaveClient | None:
        """Of cores that step in lockstep, once they are loaded."""
        return self._lockstep.waves if self._lockstep is not None else None

    @property
    def waves_address(self) -> str | None:
        """Where the coordinator tells front ends of waves, once there is one."""
        return self._lockstep.waves_address if self._lockstep is not None else None

    @property
    def a_core_has_failed(self) -> bool:
        """Some core is lost for good that was not of a process of ours that ended well."""
        well_ended = {rank for rank, process in self._processes.items() if process.has_shut_down}
        if well_ended and not self._config.is_local:
            return False  # The one process had brought up the others too.
        return any(engine.is_gone_for_good and engine.rank not in well_ended for engine in self._engines.all)

    async def load(self) -> EngineReadyResponse:
        """Bring up the cores and return what they say of themselves together.

        Raises CoreLoadError; the caller must still ``stop``.
        """
        num_local = self._config.data_parallel_size if self._config.is_local else 0
        init = await self._init()
        try:
            server = self._engines.handshake(self._handshake_address, num_local, init)
        except HandshakeError as error:
            raise CoreLoadError(str(error)) from error
        self._resources.callback(server.close)
        try:
            response = await self._load(server)
        except HandshakeError as error:
            outcome = "failed to load and is ended" if self._processes else "failed to load"
            raise CoreLoadError(f"the core {outcome}: {error}") from error
        self._watch(server)
        return response

    async def stop(self) -> None:
        """End and reap the processes, if there are any. From here on their end is no loss."""
        self._engines.let_go()
        await self._resources.aclose()
        await asyncio.gather(*(process.stop(self._config.terminate_grace_s) for process in self._processes.values()))
        if self._lockstep is not None:
            await self._lockstep.stop()

    async def _init(self) -> EngineInit:
        """What the cores are told."""
        if self._lockstep is None:
            return EngineInit(self._addresses)
        init = await self._lockstep.start(self._addresses)
        self._run(self._lose_cores_with_coordinator(self._lockstep))
        return init

    async def _load(self, server: HandshakeServer) -> EngineReadyResponse:
        if not self._config.is_local:
            logger.info("waiting for a core at %s", server.address)
        for engine in self._engines.all[: self._config.num_children]:
            self._start(engine, server.address)
        return await self._unless_lost(self._introduction(server))

    def _start(self, engine: Engine, handshake_address: str) -> CoreProcess:
        """The process of ``engine``, or the one that brings up all. Raises CoreLoadError."""
        process = self._processes[engine.rank] = self._start_process(engine, handshake_address)
        logger.info("core started, pid %d", process.pid)
        self._run(self._lose_core_at_exit(process))
        return process

    def _start_process(self, engine: Engine, handshake_address: str) -> CoreProcess:
        start = self._config.command, handshake_address, engine.rank
        if not self._config.tensor_ipc:
            return CoreProcess(*start)
        sender_end, receiver_end = tensor_channel()
        sender = TensorSender(sender_end)
        self._resources.callback(sender.close)
        engine.encoder = Encoder(sender)
        with receiver_end:
            return CoreProcess(*start, receiver_end)

    async def _introduction(self, server: HandshakeServer) -> EngineReadyResponse:
        timeout_s = self._config.load_timeout_s
        await server.run(timeout_s)
        try:
            return await asyncio.wait_for(asyncio.shield(self._engines.ready), timeout_s)
        except TimeoutError:
            raise HandshakeError(f"it said READY, but sent no ready response within {timeout_s:g} s") from None

    async def _unless_lost(self, loading: Coroutine[Any, Any, EngineReadyResponse]) -> EngineReadyResponse:
        task = asyncio.ensure_future(loading)
        awaited: set[asyncio.Future[Any]] = {task, self._engines.lost}
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise CoreLoadError(f"the core failed to load: {self._engines.lost.result()}")
            return task.result()
        finally:
            task.cancel()

    def _watch(self, server: HandshakeServer) -> None:
        self._run(self._take_pulses())
        if self._config.is_lockstep or (self._config.is_local and not self._config.awaits_successors):
            server.close()
            return
        self._run(self._expect_successors(server))
        if self._config.awaits_successors:
            self._replace(server)

    def _replace(self, server: HandshakeServer) -> None:
        """Whatever is lost from now on."""
        if self._config.command:
            self._engines.num_beats_to_be_stuck = self._config.num_beats_to_be_stuck
        replacement = Replacement(
            self._config,
            self._engines,
            self._others,
            self._processes,
            lambda engine: self._start(engine, server.address),
        )
        for keeping in replacement.keepers():
            self._run(keeping)

    async def _lose_core_at_exit(self, process: CoreProcess) -> None:
        end = await process.exited()
        if self._processes[process.rank] is process:
            self._engines.lose_core_after_last_words(process.rank, f"its process {process.pid} ended with {end}")

    async def _lose_cores_with_coordinator(self, lockstep: Lockstep) -> None:
        """They do not notice, and would wait for each other for ever."""
        reason = await lockstep.coordinator_lost()
        for engine in self._engines.all:
            self._engines.lose_core(engine.rank, reason)

    async def _take_pulses(self) -> None:
        while True:
            await asyncio.sleep(self._config.ping_timeout_s / BEATS_PER_TIMEOUT)
            self._engines.beat()

    async def _expect_successors(self, server: HandshakeServer) -> None:
        """Until a core is lost for good: the gateway then ends, and whoever says HELLO after that is for the next."""
        self._engines.lost.add_done_callback(lambda _reason: server.close())
        async for rank in server.successors():
            logger.info("a core of rank %d says HELLO", rank)
            self._engines.expect_successor(rank)
            await self._others.expect_core(rank)

    def _run(self, watch: Coroutine[Any, Any, None]) -> None:
        """Until ``stop``."""
        task = asyncio.ensure_future(watch)
        task.add_done_callback(self._note_end)
        self._resources.callback(task.cancel)

    def _note_end(self, watch: "asyncio.Task[None]") -> None:
        """Without one of its watches the gateway would not hear of a core's end: rather it ends itself."""
        if watch.cancelled() or (error := watch.exception()) is None:
            return
        logger.error("the watch over the cores failed", exc_info=error)
        for engine in self._engines.all:
            self._engines.lose_core(engine.rank, f"the watch over it failed: {error!r}")
            self._engines.give_up(engine.rank, f"the watch over it failed: {error!r}")


def joined(front_ends: Sequence[EngineAddresses]) -> EngineAddresses:
    """Of all of them, as INIT has it: each one's place is its client index."""
    inputs = [address for front_end in front_ends for address in front_end.inputs]
    return EngineAddresses(inputs, [address for front_end in front_ends for address in front_end.outputs])
