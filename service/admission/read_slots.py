"""How many calls may have their requests under way at once: gRPC holds what has come of each, until it is complete.

A request that is not asked for yet stays with its client, but for the first 64 KiB. Small ones are here at once and
leave their slot at once; who sends slowly gives it up when others want it, the sooner the more they are: whoever waits
comes to its turn, though thousands before it began calls and send nothing.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from service.errors import QueueFull

NUM_SLOTS = 64
PATIENCE_S = 5.0
_MIN_PATIENCE_S = 0.01
"""For what is here already to be taken."""


class _Reader:
    __slots__ = ("is_revoked", "since", "task")

    def __init__(self, task: "asyncio.Task[object]", since: float) -> None:
        self.task = task
        self.since = since
        self.is_revoked = False

    def revoke(self) -> None:
        self.is_revoked = True
        self.task.cancel()


class ReadSlots:
    """At most ``num_slots`` reads run; the others wait, first come, first served.

    While others wait, a read that has taken ``patience_s`` is ended; of more than ``num_slots`` others, so that about
    as long is the wait of the last of them. Owned by the event loop.
    """

    def __init__(self, num_slots: int = NUM_SLOTS, patience_s: float = PATIENCE_S) -> None:
        self._num_slots = num_slots
        self._patience_s = patience_s
        self._num_taken = 0
        self._readers: dict[_Reader, None] = {}
        """The oldest first."""
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        """Of the timer."""

    def __repr__(self) -> str:
        return f"ReadSlots({self._num_taken} of {self._num_slots} taken, {len(self._waiting)} wait)"

    async def read(self, read: Callable[[], Awaitable[bytes]]) -> bytes:
        """What ``read`` returns, as soon as there is a slot. Raises QueueFull if it is too slow for those who wait."""
        await self._take()
        task = asyncio.current_task()
        assert task is not None, "on a task"
        reader = _Reader(task, asyncio.get_running_loop().time())
        self._readers[reader] = None
        self._watch()  # those who were looked after until now may all have given way
        try:
            return await read()
        except asyncio.CancelledError:
            if reader.is_revoked and not task.uncancel():
                waited_s = asyncio.get_running_loop().time() - reader.since
                text = f"the request had not come after {waited_s:.2g} s, while others waited to be read"
                raise QueueFull(text, reason="READ_TOO_SLOW") from None
            raise
        finally:
            del self._readers[reader]
            self._give_back()

    async def _take(self) -> None:
        if self._num_taken < self._num_slots:
            self._num_taken += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        self._watch()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # The slot has been handed over already.
                self._give_back()
            self._waiting.pop(turn, None)
            raise

    def _give_back(self) -> None:
        """To who has waited longest, if one still waits."""
        while self._waiting:
            turn, _ = self._waiting.popitem(last=False)
            if not turn.done():
                turn.set_result(None)
                return
        self._num_taken -= 1

    def _watch(self) -> None:
        """Look again when the oldest read has taken too long, as long as others wait."""
        oldest = next((reader for reader in self._readers if not reader.is_revoked), None)
        if not self._waiting or oldest is None:
            return
        due = oldest.since + self._patience()
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = asyncio.get_running_loop().call_at(due, self._revoke_slow)

    def _patience(self) -> float:
        """In halves, so that not everyone who comes moves the timer."""
        halvings = (len(self._waiting) // self._num_slots).bit_length()
        return max(self._patience_s / (1 << halvings), min(self._patience_s, _MIN_PATIENCE_S))

    def _revoke_slow(self) -> None:
        self._timer = None
        latest = asyncio.get_running_loop().time() - self._patience()
        slow = [reader for reader in self._readers if reader.since <= latest and not reader.is_revoked]
        for reader in slow[: len(self._waiting)]:
            reader.revoke()
        self._watch()
