"""The bytes of the requests that calls hold, from when they are read until the calls end."""

import asyncio

from service.admission.budget import Budget
from service.errors import QueueFull

MAX_HELD_BYTES = 2**30
"""Of all calls together, as they came over the wire: sixty-four of the largest."""

_LOOK_AGAIN_S = 0.05


class HeldMessage:
    """The request of one call, or the last of its requests, counted in ``budget``."""

    __slots__ = ("_budget", "_num_bytes")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._num_bytes = 0

    def hold(self, message: bytes) -> None:
        """In place of the one before. Raises QueueFull when calls hold too much already."""
        self.release()
        num_bytes = len(message)
        if not self._budget.has_room(num_bytes):
            bound = f"the requests of all calls may have {self._budget.limit} bytes together"
            text = f"{bound} and have {self._budget.held}, this one has {num_bytes}"
            raise QueueFull(text, retry_after_s=self._budget.refuse(num_bytes))
        self._budget.take(num_bytes)
        self._num_bytes = num_bytes

    async def hold_when_there_is_room(self, message: bytes) -> None:
        """As ``hold``, of a call that has other requests, which a refusal would end: it waits, and so does its client.

        Raises QueueFull for a message that never fits.
        """
        self.release()
        # So rare that nobody need tell of room.
        while not self._budget.has_room(len(message)) and len(message) <= self._budget.limit:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN_S)
        self.hold(message)

    def release(self) -> None:
        """The call has ended, or wants its next request. May be called twice."""
        if self._num_bytes:
            self._budget.give_back(self._num_bytes)
            self._num_bytes = 0
