"""Another core in the place of one that is lost.

    child         killed if it still lives, then started again: at once, or later if it was of no use (RestartBudget)
    launcher      the child that brings up all cores: ended with the last of them, then started again
    from elsewhere  nothing to start: whoever runs it starts another, which says HELLO, within the time of a load

Given up, a rank ends the gateway: whoever watches over its process can do more than start cores.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, MutableMapping
from typing import Any, Protocol

from service.config import CoreConfig
from service.cores.core_process import CoreLoadError, CoreProcess
from service.cores.engine import Engine
from service.cores.engines import Engines
from service.cores.restart_budget import WINDOW_S, RestartBudget

logger = logging.getLogger(__name__)

_EXIT_GRACE_S = 5.0
"""For a child whose connection has ended to end too: its log says why."""


class Followers(Protocol):
    """Who has the same cores, but does not keep them."""

    async def lose_core(self, rank: int, reason: str) -> None:
        """As ``Engines.lose_core``."""

    async def give_up_core(self, rank: int, reason: str) -> None:
        """As ``Engines.give_up``."""


class Replacement:
    """``keepers`` run from when all cores are ready until the gateway stops."""

    def __init__(
        self,
        config: CoreConfig,
        engines: Engines,
        followers: Followers,
        processes: MutableMapping[int, CoreProcess],
        start: Callable[[Engine], CoreProcess],
    ) -> None:
        """``start`` puts another process into ``processes``; it raises CoreLoadError."""
        self._config = config
        self._engines = engines
        self._followers = followers
        self._processes = processes
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Future[None] = self._loop.create_future()
        self._budgets = {engine.rank: RestartBudget(config.max_restarts) for engine in engines.all}
        engines.on_news = lambda _engine: self._tell_news()

    def keepers(self) -> Iterator[Coroutine[Any, Any, None]]:
        """One for each rank, and one for the launcher."""
        keep = self._keep_child if self._config.is_local else self._keep_from_elsewhere
        yield from (keep(engine) for engine in self._engines.all)
        if self._config.command and not self._config.is_local:
            yield self._keep_launcher(self._engines.all[0])

    async def _keep_child(self, engine: Engine) -> None:
        while not engine.is_gone_for_good:
            await self._until_lost(engine)
            why: str | None = await self._end(engine)
            was_useful = engine.was_useful
            while why is not None and (delay_s := await self._spend(engine, was_useful, why)) is not None:
                await asyncio.sleep(delay_s)
                was_useful, why = False, await self._load(engine)

    async def _until_lost(self, engine: Engine) -> None:
        await self._until(lambda: bool(engine.lost_because))
        await self._followers.lose_core(engine.rank, engine.lost_because or "")

    async def _give_up(self, engine: Engine, reason: str) -> None:
        self._engines.give_up(engine.rank, reason)
        await self._followers.give_up_core(engine.rank, reason)

    async def _end(self, engine: Engine) -> str:
        """Why it is lost. What has lost its connection may still say why; what is stuck says nothing any more."""
        process = self._processes[engine.rank]
        was_seen_to_end = process.has_ended
        await process.end_by_force(0 if engine.pulse.is_silent else _EXIT_GRACE_S)
        end = "" if was_seen_to_end else f"; its process {process.pid} ended with {await process.exited()}"
        return f"{engine.lost_because}{end}"

    async def _spend(self, engine: Engine, was_useful: bool, why: str | None) -> float | None:
        """The delay before another is started; None: the rank is given up."""
        delay_s = self._budgets[engine.rank].spend(was_useful=was_useful)
        if delay_s is None:
            limit = f"{self._config.max_restarts} restarts within {WINDOW_S / 60:g} minutes have not helped"
            await self._give_up(engine, f"{why}; {limit}")
        else:
            logger.error("rank %d is lost: %s; another is started in %.1f s", engine.rank, why, delay_s)
        return delay_s

    async def _load(self, engine: Engine) -> str | None:
        """Start another core. Why it cannot serve, None: it does."""
        engine.refusal, incarnation = None, engine.incarnation
        try:
            process = self._start(engine)
        except CoreLoadError as error:
            return str(error)
        end = asyncio.ensure_future(process.exited())
        end.add_done_callback(lambda _end: self._tell_news())
        try:
            async with asyncio.timeout(self._config.load_timeout_s):
                await self._until(lambda: engine.incarnation > incarnation or bool(engine.refusal) or end.done())
        except TimeoutError:
            engine.refusal = f"it was not ready within {self._config.load_timeout_s:g} s"
        if engine.incarnation > incarnation:
            return None
        why = engine.refusal or f"its process {process.pid} ended with {end.result()}, before it was ready"
        await process.end_by_force(0)
        return why

    async def _keep_from_elsewhere(self, engine: Engine) -> None:
        while not engine.is_gone_for_good:
            await self._until_lost(engine)
            timeout_s, why = self._config.load_timeout_s, engine.lost_because
            logger.error("rank %d is lost: %s; another has %g s to come", engine.rank, why, timeout_s)
            try:
                async with asyncio.timeout(timeout_s):
                    await self._until(lambda: engine.is_alive)
            except TimeoutError:
                await self._give_up(engine, f"{why}; no other has come within {timeout_s:g} s")

    async def _keep_launcher(self, first: Engine) -> None:
        """``first`` stands for all of the engines that it brings up."""
        while True:
            process = self._processes[first.rank]
            await self._until(lambda: not self._engines.alive)
            await process.stop(self._config.terminate_grace_s)
            was_useful = any(engine.was_useful for engine in self._engines.all)
            why = f"the process {process.pid} that brought it up ended with {await process.exited()}"
            if (delay_s := await self._spend(first, was_useful, why)) is None:
                return
            await asyncio.sleep(delay_s)
            self._start(first)
            await self._until(lambda: bool(self._engines.alive) or self._processes[first.rank].has_ended)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Asked again whenever there is news."""
        while not is_so():
            await asyncio.shield(self._news)

    def _tell_news(self) -> None:
        news, self._news = self._news, self._loop.create_future()
        news.set_result(None)
