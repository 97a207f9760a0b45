"""The workers as the primary sees them: it brings them up, speaks for all of them, and does not outlive one.

A gateway of one process has a team of nobody: every question has the answer 0.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from core.wire.messages import EngineAddresses, LoRARequest
from service.config import CoreConfig, GatewayConfig, ListenConfig
from service.engines import Engines
from service.reserved_ports import ReservedPorts
from service.to_the_end import ToTheEnd
from service.workers import methods
from service.workers.channel import CallError, Channel, ChannelClosedError, Method
from service.workers.core_loads import adopt, loads_of
from service.workers.methods import Report
from service.workers.process import WorkerError, WorkerProcess
from service.workers.settings import WorkerSettings

logger = logging.getLogger(__name__)

_A = TypeVar("_A")
_R = TypeVar("_R")
_EXCHANGE_INTERVAL_S = 0.1
"""As vLLM's front ends are told of each other's load."""
_STOP_GRACE_S = 5.0
"""More than a worker gives its last answers."""


class Team:
    """``lost`` resolves with the reason when a worker is gone without being told to."""

    def __init__(self, config: GatewayConfig, folder: Path, engines: Engines) -> None:
        """``folder`` is private to this gateway. Raises WorkerError if there are no ports to be had.

        ``engines``: the cores as this process sees them.
        """
        self._config = config
        self._folder = folder
        self._engines = engines
        self._ports: ReservedPorts | None = None
        self.addresses = self._choose_addresses(config.core, folder, config.workers.num_workers - 1)
        """Where each worker's sockets for the cores will be: the cores may be told before there is a worker."""
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._processes: list[WorkerProcess] = []
        self._channels: list[Channel] = []
        self._watches: list[asyncio.Task[None]] = []
        self._work = ToTheEnd()

    def __repr__(self) -> str:
        return f"Team({len(self._processes)} workers)"

    async def start(self, listen: ListenConfig) -> None:
        """Start the processes, for the ports of ``listen``; each reads the model's files and waits for the cores.

        Raises WorkerError.
        """
        events = self._config.kv_events
        config = replace(self._config, kv_events=events and events.placed_in(self._folder))
        for number, addresses in enumerate(self.addresses, 1):
            process = WorkerProcess(self._config.workers.command, number)
            logger.info("gateway worker %d started, pid %d", number, process.pid)
            self._processes.append(process)
            channel = await process.open_channel()
            self._channels.append(channel)
            self._watches.append(asyncio.ensure_future(self._watch(process)))
            settings = WorkerSettings.of(number, config, listen, addresses)
            await self._told(process, channel, methods.PREPARE, settings.to_json())

    async def open(self, opening: methods.Opening) -> None:
        """Return when every worker serves. Raises WorkerError."""
        pairs = zip(self._processes, self._channels, strict=True)
        await asyncio.gather(*(self._told(process, channel, methods.OPEN, opening) for process, channel in pairs))
        if self._processes:
            self._watches.append(asyncio.ensure_future(self._exchange_core_loads()))

    async def drain(self, timeout_s: float) -> int:
        """As ``Gate.drain``, of all workers."""
        return sum(await self._ask(methods.DRAIN, timeout_s))

    async def abort(self, request_ids: Sequence[str]) -> int:
        """As ``Generator.abort``, of all workers."""
        return sum(await self._ask(methods.ABORT, list(request_ids)))

    async def abort_all(self) -> int:
        """As ``Generator.abort_all``, of all workers."""
        return sum(await self._ask(methods.ABORT_ALL, None))

    def tell_asleep(self, is_asleep: bool) -> None:
        """As ``Gate.set_asleep``, of all workers: soon."""
        self._work.begin(self._ask(methods.SET_ASLEEP, is_asleep))

    async def set_adapters(self, loras: Iterable[LoRARequest]) -> None:
        """As ``Adapters.mirror``, of all workers."""
        await self._ask(methods.SET_ADAPTERS, [*loras])

    async def loads(self) -> list[bytes]:
        """What each worker has counted, as a ``Load`` of sluicegate.v1; what it knows of the cores is known here."""
        return self._take_in(await self._ask(methods.REPORT_LOAD, None))

    async def metrics(self) -> list[bytes]:
        """What each worker has counted, as ``Exposition.encoded``; what it knows of the cores is known here."""
        return self._take_in(await self._ask(methods.REPORT_METRICS, None))

    async def lose_core(self, rank: int, reason: str) -> None:
        """As ``Engines.lose_core``, of all workers that have not noticed."""
        await self._ask(methods.LOSE_CORE, methods.CoreLoss(rank, reason))

    async def expect_core(self, rank: int) -> None:
        """As ``Engines.expect_successor``, of all workers."""
        await self._ask(methods.EXPECT_CORE, rank)

    async def give_up_core(self, rank: int, reason: str) -> None:
        """As ``Engines.give_up``, of all workers."""
        await self._ask(methods.GIVE_UP_CORE, methods.CoreLoss(rank, reason))

    async def stop(self) -> None:
        """Let the last answers leave, then end and reap the processes."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*(channel.close() for channel in self._channels))
        await asyncio.gather(*(process.let_go(_STOP_GRACE_S) for process in self._processes))
        if self._ports is not None:
            self._ports.close()

    def _take_in(self, reports: list[Report]) -> list[bytes]:
        for report in reports:
            adopt(self._engines.all, report.core_loads)
        return [report.counted for report in reports]

    async def _exchange_core_loads(self) -> None:
        """So often that no process long takes a core for busier, or less busy, than it is."""
        while True:
            await asyncio.sleep(_EXCHANGE_INTERVAL_S)
            for loads in await self._ask(methods.EXCHANGE_CORE_LOADS, loads_of(self._engines.all)):
                adopt(self._engines.all, loads)

    async def _ask(self, method: Method[_A, _R], argument: _A) -> list[_R]:
        """What those answer that are there: what another had is gone with it. Raises CallError."""
        calls = (channel.call(method, argument) for channel in self._channels)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, ChannelClosedError):
                raise answer
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def _told(self, process: WorkerProcess, channel: Channel, method: Method[_A, None], argument: _A) -> None:
        """Raises WorkerError, with how the process has ended if it has."""
        try:
            await channel.call(method, argument)
        except CallError as error:
            raise WorkerError(f"{process.name} failed to {method.name}: {error}") from error
        except ChannelClosedError:
            raise WorkerError(f"{process.name} ended with {await process.exited()}") from None

    async def _watch(self, process: WorkerProcess) -> None:
        end = await process.exited()
        if not self.lost.done():
            self.lost.set_result(f"{process.name}, pid {process.pid}, ended with {end}")

    def _choose_addresses(self, core: CoreConfig, folder: Path, num_workers: int) -> list[EngineAddresses]:
        if (host := core.tcp_host) is None:
            names = range(1, num_workers + 1)
            return [EngineAddresses([f"ipc://{folder}/requests{n}"], [f"ipc://{folder}/outputs{n}"]) for n in names]
        try:
            self._ports = ReservedPorts(host, 2 * num_workers)
        except OSError as error:
            raise WorkerError(f"no ports for the gateway workers at {host}: {error}") from error
        shown_host = f"[{host}]" if ":" in host else host
        places = [f"tcp://{shown_host}:{port}" for port in self._ports.numbers]
        return [EngineAddresses([places[2 * n]], [places[2 * n + 1]]) for n in range(num_workers)]
