"""Follows the publisher of one core: brings its batches into order, and has repeated what was missed.

connected     all that is kept is asked for, from batch 0 on: the core may have been there for long
live batch    the next: taken. Known from a repetition: left. Further ahead: what lies between is asked for, and
              until that is here no live batch is read. Below the last live one: another publisher, who counts anew
repeated      taken in order; if it begins later, what lies before is lost
silence       may hide that the last batch was missed, as it is if it comes before the subscription has reached the
              publisher, who is asked once in every silence
disconnected  the publisher is gone, or maybe only out of sight: another one would count as this one does, so what
              is known is given up
"""

import asyncio
import logging
from typing import Protocol

from service.kv_events.rank_events import RankEvents

logger = logging.getLogger(__name__)

REPLAY_PATIENCE_S = 5.0
SILENCE_S = 1.0
_LOOKS_UNTIL_WARNING = 60


class Publisher(Protocol):
    """The sockets to a publisher."""

    @property
    def can_repeat(self) -> bool:
        """It may be asked for what was missed."""

    def ask_from(self, number: int) -> None:
        """Have the batches from ``number`` on repeated, as far as they are kept."""

    def forget_question(self) -> None:
        """Whatever still comes in answer is nobody's."""

    def listen(self, is_listening: bool) -> None:
        """Whether live batches are read; those that are not wait, at the publisher if need be."""


class RankFollower:
    """Hands the batches of ``publisher`` to ``events``. Owned by the event loop."""

    def __init__(
        self,
        events: RankEvents,
        publisher: Publisher,
        patience_s: float = REPLAY_PATIENCE_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        """``patience_s``: how long a publisher that was asked may say nothing; ``silence_s``: and one that was not."""
        self._loop = asyncio.get_running_loop()
        self._events = events
        self._publisher = publisher
        self._patience_s = patience_s
        self._silence_s = silence_s
        self._next_live = 0
        self._ahead: tuple[int, bytes] | None = None
        """The live batch that waits for what lies before it."""
        self._patience: asyncio.TimerHandle | None = None
        self._is_connected = False
        self._has_spoken = False
        """Since the last look."""
        self._may_have_missed = False
        self._num_looks_in_vain = 0
        self._looking = self._loop.call_later(self._silence_s, self._look)

    def connected(self) -> None:
        logger.info("the KV events of rank %d are followed", self._events.rank)
        self._is_connected = self._has_spoken = True
        self._ask()

    def disconnected(self) -> None:
        self._is_connected = False
        self._stop_asking()
        self._begin_anew("its publisher is gone")
        self._publisher.listen(True)

    def live(self, number: int, payload: bytes) -> None:
        """A batch as it is published."""
        if number < self._next_live:
            self._begin_anew(f"its publisher began anew: batch {number} came after batch {self._next_live - 1}")
        self._next_live = number + 1
        self._has_spoken = True
        if number == self._events.next_number:
            self._events.take(payload)
        elif number > self._events.next_number:
            self._ahead = number, payload
            self._ask()

    def repeated(self, number: int, payload: bytes) -> None:
        """A batch that was asked for."""
        self._wait_for_answer()
        if number > self._events.next_number:
            self._skip_to(number)
        if number == self._events.next_number:
            self._events.take(payload)

    def all_repeated(self) -> None:
        """No more is kept."""
        self._stop_asking()
        if self._ahead is not None:
            (number, payload), self._ahead = self._ahead, None
            if number > self._events.next_number:
                self._skip_to(number)
            if number == self._events.next_number:
                self._events.take(payload)
        self._publisher.listen(True)

    def close(self) -> None:
        self._looking.cancel()
        self._stop_asking()

    def _look(self) -> None:
        self._looking = self._loop.call_later(self._silence_s, self._look)
        self._num_looks_in_vain = 0 if self._is_connected else self._num_looks_in_vain + 1
        if self._num_looks_in_vain == _LOOKS_UNTIL_WARNING:
            logger.warning("nobody publishes the KV events of rank %d at %s", self._events.rank, self._publisher)
        if not self._is_connected or self._patience is not None:
            return
        if self._may_have_missed and not self._has_spoken:
            self._may_have_missed = False
            self._ask()
        self._may_have_missed |= self._has_spoken
        self._has_spoken = False

    def _ask(self) -> None:
        if not self._publisher.can_repeat:
            self.all_repeated()
            return
        self._publisher.listen(False)
        self._publisher.ask_from(self._events.next_number)
        self._wait_for_answer()

    def _wait_for_answer(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self._loop.call_later(self._patience_s, self._give_up)

    def _give_up(self) -> None:
        logger.warning("rank %d repeats no KV events: no answer in %g s", self._events.rank, self._patience_s)
        self.all_repeated()

    def _stop_asking(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
            self._publisher.forget_question()

    def _skip_to(self, number: int) -> None:
        missed = f"batches {self._events.next_number} to {number - 1} were missed and are not kept"
        self._events.lose(missed, number)

    def _begin_anew(self, reason: str) -> None:
        self._ahead = None
        self._next_live = 0
        self._events.lose(reason)
