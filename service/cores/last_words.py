"""Cores that go: how that shows, and that what they have said last is read before they are lost.

hang-up           of the connection that a core's messages came on; the end of a process of ours may say more
end of a process  told by the supervisor
death notice      ENGINE_CORE_DEAD, which bears no name: see ``DeathNotices``
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from service.cores.death_notices import DeathNotices
from service.cores.engine import Engine

_LAST_WORDS_TIMEOUT_S = 1.0
"""For the connection of a core that is gone to end. What the core has sent comes before that."""
_EXIT_NOTICE_S = 0.1
"""After a hang-up: the end of a process of ours is on its way too, and says more."""


class Speakers(Protocol):
    """The connections by which cores speak."""

    @property
    def num_speakers(self) -> int: ...

    def read_outputs_to_end(self) -> None: ...


class LastWords:
    """Of ``engines``. Owned by the event loop. ``lose`` as ``Engines.lose_core``, ``ask`` as ``Engines.ask``."""

    def __init__(
        self,
        engines: Sequence[Engine],
        speakers: Speakers,
        lose: Callable[[int, str], None],
        ask: Callable[[Engine], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._engines = engines
        self._speakers = speakers
        self._lose = lose
        self._ask = ask
        self._deaths = DeathNotices()

    @property
    def has_unnamed_death(self) -> bool:
        """A core has reported its own death, and it is not clear which."""
        return bool(self._deaths)

    def lose_after(self, engine: Engine, reason: str) -> None:
        """It is gone, but what it said last may still be on its way: lose it when that is read."""
        if engine.farewell is None:
            engine.farewell = reason
            self._loop.call_later(_LAST_WORDS_TIMEOUT_S, self._lose_incarnation, engine, engine.incarnation, reason)
            self.end_if_heard()

    def end_if_heard(self) -> None:
        """Lose the cores that are gone, if nobody is left who could still speak for one of them."""
        going = [engine for engine in self._engines if engine.farewell is not None and engine.lost_because is None]
        num_staying = sum(engine.farewell is None for engine in self._alive())
        if going and self._speakers.num_speakers <= num_staying:
            self._speakers.read_outputs_to_end()
            for engine in going:
                assert engine.farewell is not None, "it is going"
                self._lose(engine.rank, engine.farewell)

    def note_hangup(self, connection: int) -> None:
        """The connection of this number is closed."""
        for engine in self._alive():
            if engine.connection == connection:
                self._loop.call_later(_EXIT_NOTICE_S, self._lose_unless_succeeded, engine, engine.incarnation)

    def note_death(self) -> None:
        """Some core reports its own: with several, whoever answers now is not the dead one."""
        self._bury(self._deaths.came([engine.rank for engine in self._alive()]))
        if self._deaths:
            for engine in self._alive():
                self._ask(engine)

    def note_heard(self, engine: Engine) -> None:
        """It said something: no death of before was its own."""
        if self._deaths:
            self._bury(self._deaths.heard(engine.rank))

    def note_lost(self, engine: Engine) -> None:
        """However that was noticed."""
        self._deaths.lost(engine.rank)

    def _alive(self) -> list[Engine]:
        return [engine for engine in self._engines if engine.is_alive]

    def _bury(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            self._lose(rank, "it reported a fatal error")

    def _lose_incarnation(self, engine: Engine, incarnation: int, reason: str) -> None:
        if engine.incarnation == incarnation:
            self._lose(engine.rank, reason)

    def _lose_unless_succeeded(self, engine: Engine, incarnation: int) -> None:
        if engine.incarnation == incarnation:
            self.lose_after(engine, "it closed the connection")
