"""Keeps one worker's place filled, and the worker informed.

gone      the process has ended, however              another is started: at once, or later if that one never served
stuck     it has not answered for ``stuck_timeout_s``  killed: its clients come to other processes, and it is gone
given up  too many restarts (``RestartBudget``)        ``keep`` returns
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from service.config import WorkersConfig
from service.cores.engines import Engines
from service.cores.restart_budget import WINDOW_S, RestartBudget
from service.workers import methods
from service.workers.channel import ChannelClosedError
from service.workers.core_loads import adopt, loads_of
from service.workers.member import Member
from service.workers.methods import Opening
from service.workers.process import WorkerError

logger = logging.getLogger(__name__)

_EXCHANGE_INTERVAL_S = 0.1
"""As vLLM's front ends are told of each other's load."""
_LOOK_AT_CORES_S = 0.1


class Keeper:
    """Of ``member``, which serves already. ``engines``: the cores as the primary sees them."""

    def __init__(
        self,
        member: Member,
        config: WorkersConfig,
        engines: Engines,
        opening: Callable[[], Opening],
        on_gone: Callable[[Member], None],
    ) -> None:
        """``opening``: how things stand at any time. ``on_gone``: called when a process has ended."""
        self._member = member
        self._config = config
        self._engines = engines
        self._opening = opening
        self._on_gone = on_gone
        self._is_ending = False
        self.num_restarts = 0
        """Workers that have taken the place of another."""

    def end(self) -> None:
        """From now on nobody is replaced."""
        self._is_ending = True

    async def keep(self) -> str:
        """Fill the place again whenever it gets empty; return, with the reason, when that happens too often."""
        budget = RestartBudget(self._config.max_restarts)
        while True:
            why: str | None = await self._member.ended()
            was_useful = True
            self._on_gone(self._member)
            while why is not None:
                if self._is_ending:
                    await asyncio.Event().wait()
                if (delay_s := budget.spend(was_useful=was_useful)) is None:
                    return f"{why}; {self._config.max_restarts} restarts in {WINDOW_S / 60:g} minutes have not helped"
                logger.error("%s; another is started in %.1f s", why, delay_s)
                await asyncio.sleep(delay_s)
                why, was_useful = await self._fill(), False

    async def exchange_core_loads(self) -> None:
        """So often that neither process long takes a core for busier, or less busy, than it is. Endless."""
        while True:
            await asyncio.sleep(_EXCHANGE_INTERVAL_S)
            try:
                async with asyncio.timeout(self._config.stuck_timeout_s):
                    loads = await self._member.call(methods.EXCHANGE_CORE_LOADS, loads_of(self._engines.all))
            except ChannelClosedError:
                continue
            except TimeoutError:
                logger.error("gateway worker %d is stuck: it is killed", self._member.number)
                self._member.kill()
            else:
                adopt(self._engines.all, loads)

    async def _fill(self) -> str | None:
        """Why no other worker serves in the place; None: one does."""
        try:
            await self._member.start()
            await self._member.prepared()
            while not all(engine.is_alive for engine in self._engines.all):  # noqa: ASYNC110  several may have to come
                await asyncio.sleep(_LOOK_AT_CORES_S)
            if self._is_ending:
                raise WorkerError("nobody is needed any more")
            cores = [engine.response for engine in self._engines.all if engine.response is not None]
            await self._member.open(msgspec.structs.replace(self._opening(), cores=cores))
        except WorkerError as error:
            await self._member.stop()
            return str(error)
        self.num_restarts += 1
        return None
