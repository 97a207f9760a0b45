"""The workers as the primary sees them: it brings them up, speaks for all of them, and replaces those that end.

A gateway of one process has a team of nobody: every question has the answer 0.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client.metrics_core import Metric

from core.wire.messages import EngineAddresses, LoRARequest
from service.admission.admission import NUM_BUDGETS
from service.admission.budget import Elsewhere, Nowhere
from service.config import CoreConfig, GatewayConfig, ListenConfig, WorkersConfig
from service.cores.engines import Engines
from service.gate import Gate
from service.metrics.families_of_processes import left_by
from service.metrics.processes import process_families
from service.reserved_ports import ReservedPorts
from service.servicers.load import left_by as loads_left_by
from service.to_the_end import ToTheEnd
from service.workers import methods
from service.workers.channel import ChannelClosedError, Handlers, Method
from service.workers.core_loads import adopt
from service.workers.keeper import Keeper
from service.workers.ledger import Ledger
from service.workers.member import Member
from service.workers.methods import Farewell, Opening, Report
from service.workers.process import WorkerError
from service.workers.settings import WorkerSettings
from service.workers.shared_counts import SharedCounts, new_memory

logger = logging.getLogger(__name__)

_A = TypeVar("_A")
_R = TypeVar("_R")
_REPORT_TIMEOUT_S = 2.0
"""For what a worker has counted; else it is as it was told last."""
_END_TIMEOUT_S = 2.0
"""At the end of the gateway no worker that hangs is waited for: ``stop`` kills it."""


class Team:
    """``lost`` resolves with the reason when a worker's place cannot be filled any more."""

    def __init__(self, config: GatewayConfig, folder: Path, engines: Engines, gate: Gate) -> None:
        """``folder`` is private to this gateway. Raises WorkerError if there are no ports to be had.

        ``engines``, ``gate``: the primary's own.
        """
        self._gate = gate
        self._config = config
        self._folder = folder
        self._engines = engines
        self._ports: ReservedPorts | None = None
        self.addresses = self._choose_addresses(config.core, folder, config.workers.num_workers - 1)
        """Where each worker's sockets for the cores will be: the cores may be told before there is a worker."""
        self._members: list[Member] = []
        self._counts: SharedCounts | None = None
        self._release = ExitStack()
        if config.workers.is_shared:
            self._counts = self._make_places(config.workers)
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._keepers: list[Keeper] = []
        self._metrics = Ledger(left_by)
        self._loads = Ledger(loads_left_by)
        self._watches: list[asyncio.Task[None]] = []
        self._work = ToTheEnd()

    def __repr__(self) -> str:
        return f"Team({self._members})"

    def elsewhere(self, index: int) -> Elsewhere:
        """What the workers hold of a thing that is bounded for all processes together."""
        return Nowhere() if self._counts is None else self._counts.column(index)

    @property
    def num_serving(self) -> int:
        """Workers that serve."""
        return sum(member.is_serving for member in self._members)

    async def start(self, listen: ListenConfig) -> None:
        """Start the processes, for the ports of ``listen``; each reads the model's files and waits for the cores.

        Raises WorkerError.
        """
        events = self._config.kv_events
        config = replace(self._config, kv_events=events and events.placed_in(self._folder))
        for member in self._members:
            settings = WorkerSettings.of(member.number, config, listen, member.addresses)
            member.settings = settings.to_json()
            await member.start()

    async def open(self, opening: Callable[[], Opening]) -> None:
        """Return when every worker serves; ``opening``: how things stand, now and at any time. Raises WorkerError."""
        await asyncio.gather(*(member.prepared() for member in self._members))
        await asyncio.gather(*(member.open(opening()) for member in self._members))
        for member in self._members:
            keeper = Keeper(member, self._config.workers, self._engines, opening, self._bury)
            self._keepers.append(keeper)
            self._run(self._keep(keeper))
            self._run(keeper.exchange_core_loads())

    async def be_lame_duck(self) -> None:
        """As ``Gate.be_lame_duck``, of all workers. One that is gone is not replaced any more."""
        for keeper in self._keepers:
            keeper.end()
        await self._ask(methods.BE_LAME_DUCK, None, _END_TIMEOUT_S)

    async def drain(self, timeout_s: float) -> int:
        """As ``Gate.drain``, of all workers. One that is gone is not replaced any more."""
        for keeper in self._keepers:
            keeper.end()
        return sum(await self._ask(methods.DRAIN, timeout_s, timeout_s + _END_TIMEOUT_S))

    async def abort(self, request_ids: Sequence[str]) -> int:
        """As ``Generator.abort``, of all workers."""
        return sum(await self._ask(methods.ABORT, list(request_ids)))

    def tell_asleep(self, is_asleep: bool) -> None:
        """As ``Gate.set_asleep``, of all workers: soon."""
        self._work.begin(self._ask(methods.SET_ASLEEP, is_asleep))

    async def set_adapters(self, loras: Iterable[LoRARequest]) -> None:
        """As ``Adapters.mirror``, of all workers."""
        await self._ask(methods.SET_ADAPTERS, [*loras])

    async def forget_prefixes(self) -> None:
        """As ``EngineClient.forget_prefixes``, of all workers."""
        await self._ask(methods.FORGET_PREFIXES, None)

    async def loads(self) -> list[bytes]:
        """What each worker has counted, as a ``Load`` of sluicegate.v1; what it knows of the cores is known here."""
        return await self._reports(methods.REPORT_LOAD, self._loads)

    def families(self) -> Iterator[Metric]:
        """How many processes there are, the primary included."""
        return process_families(1 + self.num_serving, sum(keeper.num_restarts for keeper in self._keepers))

    async def metrics(self) -> list[bytes]:
        """What each worker has counted, as ``Exposition.encoded``; what it knows of the cores is known here."""
        return await self._reports(methods.REPORT_METRICS, self._metrics)

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
        await asyncio.gather(*(member.stop() for member in self._members))
        self._release.close()
        if self._ports is not None:
            self._ports.close()

    async def _abort_anywhere(self, request_ids: list[str]) -> int:
        """What a worker is asked for, by a client that does not know which process has a request."""
        return self._gate.look_in().generator.abort(request_ids) + await self.abort(request_ids)

    async def _reports(self, method: Method[None, Report], ledger: Ledger) -> list[bytes]:
        await asyncio.gather(*(self._take_report(member, method, ledger) for member in self._members))
        return ledger.all

    async def _take_report(self, member: Member, method: Method[None, Report], ledger: Ledger) -> None:
        with suppress(ChannelClosedError, TimeoutError):
            async with asyncio.timeout(_REPORT_TIMEOUT_S):
                report = await member.call(method, None)
            adopt(self._engines.all, report.core_loads)
            if report.counted:
                ledger.note(member.number, report.counted)

    def _handlers_for(self, number: int) -> Handlers:
        return {methods.ABORT_ANYWHERE: self._abort_anywhere, methods.FAREWELL: partial(self._take_farewell, number)}

    async def _take_farewell(self, number: int, farewell: Farewell) -> None:
        self._loads.note(number, farewell.load)
        self._metrics.note(number, farewell.metrics)

    async def _ask(self, method: Method[_A, _R], argument: _A, timeout_s: float | None = None) -> list[_R]:
        """What those answer that are there: what another had is gone with it. Raises CallError.

        Without ``timeout_s`` one that hangs is waited for until its keeper kills it.
        """
        calls = (asyncio.wait_for(member.call(method, argument), timeout_s) for member in self._members)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, ChannelClosedError | TimeoutError):
                raise answer
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def _keep(self, keeper: Keeper) -> None:
        self._lose(await keeper.keep())

    def _run(self, watch: Coroutine[Any, Any, None]) -> None:
        """Until ``stop``."""
        task = asyncio.ensure_future(watch)
        task.add_done_callback(self._note_end)
        self._watches.append(task)

    def _note_end(self, watch: "asyncio.Task[None]") -> None:
        """Without one of its watches the gateway would not hear of a worker's end: rather it ends itself."""
        if not watch.cancelled() and (error := watch.exception()) is not None:
            logger.error("the watch over the gateway workers failed", exc_info=error)
            self._lose(f"the watch over the workers failed: {error!r}")

    def _lose(self, why: str) -> None:
        if not self.lost.done():
            self.lost.set_result(why)

    def _bury(self, member: Member) -> None:
        """What was counted is not uncounted, and it holds nothing any more."""
        if self._counts is not None:
            self._counts.clear(member.number)
        self._metrics.bury(member.number)
        self._loads.bury(member.number)

    def _make_places(self, config: WorkersConfig) -> SharedCounts:
        counts_fd = new_memory(config.num_workers, NUM_BUDGETS)
        self._release.callback(os.close, counts_fd)
        for number, place in enumerate(self.addresses, 1):
            self._members.append(Member(number, place, config.command, counts_fd, self._handlers_for(number)))
        return SharedCounts(counts_fd, config.num_workers, NUM_BUDGETS)

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
