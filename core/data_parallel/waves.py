"""Waves: who runs when, as decisions only. No socket, no thread, no clock.

    front end ── FIRST_REQ(engine, wave) ──▶ coordinator ── START(wave) ──▶ every engine
    engine ──── start_wave, wave_complete ─────▲   └── (wave, running) ──▶ every front end

What makes a lost wake-up impossible, whatever is late, and however wrong a front end's idea of the wave:

- An engine that has work and does not run wakes everybody, through the coordinator; it relies on no front end for that.
- Whatever an engine asks for, the coordinator sends START: to an engine that runs it changes nothing.
- START wakes the engine that it excludes as well: its request may have been refused, or aborted on the way.
- START wakes a paused engine as well. It steps with nothing to run, so that no rank that has resumed, or is not told to
  pause, ever waits for one that is paused.
- Each agreement spreads the highest wave that any rank knows of.

A START is too late if its wave is over; no engine was waiting for it then, since a wave ends for all ranks at once.
"""

from collections.abc import Sequence
from typing import NamedTuple

from core.wire.waves import MAX_WAVE, StartWave

STEPS_PER_AGREEMENT = 32
"""Steps between two questions whether any rank still has work."""


class Votes(NamedTuple):
    """What one rank says in an agreement or, each the maximum over the ranks, what all of them say."""

    is_busy: int
    """1: has something to run."""
    awaits_pause: int
    """1: was told to pause, and has to answer when all ranks are idle."""
    is_not_idle: int
    """0: is paused and has nothing to run."""
    wave: int


class EngineWave:
    """One engine's idea of the wave. Owned by its busy loop.

    ``is_running``: this rank steps, whether it has work or not. ``step`` counts the steps of the wave.
    """

    def __init__(self, steps_per_agreement: int = STEPS_PER_AGREEMENT) -> None:
        self.number = 0
        self.step = 0
        self._steps_per_agreement = steps_per_agreement
        self._latest_said = 0
        self.is_running = False

    def __repr__(self) -> str:
        return f"EngineWave({self.number}, step {self.step}, {'running' if self.is_running else 'at rest'})"

    def take_request(self, wave: int) -> None:
        """A request of ``wave`` was accepted: its front end may know of a later wave than this engine.

        It counts when this engine begins or votes. Until then START of an earlier wave must not look too late: the
        request may be aborted, and the others wait.
        """
        if wave <= MAX_WAVE:
            self._latest_said = max(self._latest_said, wave)

    def take_start(self, wave: int) -> None:
        """The coordinator says that ``wave`` begins."""
        if wave >= self.number:
            self.number = wave
            self.is_running = True

    def begin_own_work(self) -> int | None:
        """There is something to do here. The wave to tell the coordinator, unless this rank runs already."""
        if self.is_running:
            return None
        self.is_running = True
        self.number = max(self.number, self._latest_said)
        return self.number

    def end_step(self) -> bool:
        """Whether the ranks must agree now."""
        self.step += 1
        return self.step % self._steps_per_agreement == 0

    def vote(self, is_busy: bool, awaits_pause: bool, is_idle: bool) -> Votes:
        """What this rank says. ``is_idle``: it is paused and has nothing to run."""
        return Votes(is_busy, awaits_pause, not is_idle, max(self.number, self._latest_said))

    def settle(self, agreed: Votes) -> int | None:
        """What the ranks have agreed on, the same on each; the wave that is complete, if it is.

        If ``is_not_idle`` is 0 every rank is idle, and each answers its pauses.
        """
        self.number = agreed.wave
        self.is_running = bool(agreed.is_busy or (agreed.awaits_pause and agreed.is_not_idle))
        if self.is_running:
            return None
        self.number, self.step = agreed.wave + 1, 0
        return agreed.wave


class CoordinatorWave:
    """The coordinator's idea of the wave. Each method says which START to send, if any."""

    def __init__(self) -> None:
        self.number = 0
        self.is_running = False

    def take_first_request(self, engine: int | None, wave: int) -> StartWave | None:
        """A front end has sent ``engine`` a request and believes that the engines rest before ``wave``."""
        if self.is_running:
            return None
        self.is_running = True
        return StartWave(self.number, engine if wave >= self.number else None)

    def take_start(self, engine: int, wave: int) -> StartWave:
        """``engine`` has work and has begun to run in ``wave``."""
        is_current = wave >= self.number
        self.number = max(self.number, wave)
        self.is_running = True
        return StartWave(self.number, engine if is_current else None)

    def take_complete(self, wave: int) -> None:
        """All engines rest: ``wave`` is over."""
        if wave >= self.number:
            self.number = wave + 1
            self.is_running = False


def combine(votes: Sequence[Votes]) -> Votes:
    """The votes of all ranks as one: what an all-reduce with maximum makes of them."""
    return Votes(*(max(column) for column in zip(*votes, strict=True)))
