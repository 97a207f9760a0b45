"""How many calls may have their requests under way at once: gRPC holds what has come of each, until it is complete.

A request that is not asked for yet stays with its client, but for the first 64 KiB. Small ones are here at once and
leave their slot at once; who sends slowly gives it up when others want it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from service.errors import QueueFull

NUM_SLOTS = 64
PATIENCE_S = 5.0


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

    While others wait, a read that has taken ``patience_s`` is ended. Owned by the event loop.
    """

    def __init__(self, num_slots: int = NUM_SLOTS, patience_s: float = PATIENCE_S) -> None:
        self._num_slots = num_slots
        self._patience_s = patience_s
        self._num_taken = 0
        self._readers: dict[_Reader, None] = {}
        """The oldest first."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

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
                text = f"the request had not come after {self._patience_s:g} s, while others waited to be read"
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
        self._waiting.append(turn)
        self._watch()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # The slot has been handed over already.
                self._give_back()
            raise

    def _give_back(self) -> None:
        """To who has waited longest, if one still waits."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._num_taken -= 1

    def _watch(self) -> None:
        """Look again when the oldest read has taken too long, as long as others wait."""
        oldest = next((reader for reader in self._readers if not reader.is_revoked), None)
        if self._timer is None and self._waiting and oldest is not None:
            self._timer = asyncio.get_running_loop().call_at(oldest.since + self._patience_s, self._revoke_slow)

    def _revoke_slow(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        slow = [reader for reader in self._readers if now - reader.since >= self._patience_s and not reader.is_revoked]
        for reader in slow[: len(self._waiting)]:
            reader.revoke()
        self._watch()
