"""Memory that zmq reads after ``send`` has returned."""

from collections import deque
from typing import Protocol

MAX_SPARE = 2
"""Buffers kept for reuse. In step with the engine one is enough; a second covers a message still being sent."""


class Tracker(Protocol):
    """zmq's MessageTracker: ``done`` when zmq needs the memory no more."""

    @property
    def done(self) -> bool: ...


class SendBuffers:
    """Buffers for one socket, each lent to zmq with its message and used again when the message has left.

    Messages of one socket leave in order, so only the oldest of those lent has to be looked at.
    """

    def __init__(self) -> None:
        self._spare: list[bytearray] = []
        self._lent: deque[tuple[Tracker, bytearray]] = deque()

    def take(self) -> bytearray:
        """A buffer that nobody reads."""
        while self._lent and self._lent[0][0].done:
            _, buffer = self._lent.popleft()
            self.give_back(buffer)
        return self._spare.pop() if self._spare else bytearray()

    def lend(self, buffer: bytearray, tracker: Tracker) -> None:
        """Keep ``buffer`` alive and untouched until ``tracker`` is done."""
        self._lent.append((tracker, buffer))

    def give_back(self, buffer: bytearray) -> None:
        """``buffer`` was not sent after all, or is sent."""
        if len(self._spare) < MAX_SPARE:
            self._spare.append(buffer)

    @property
    def num_lent(self) -> int:
        return len(self._lent)

    @property
    def num_spare(self) -> int:
        return len(self._spare)
