"""What one subscriber has not read yet, in bounded memory however slowly it reads."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress

from service.errors import DataLoss, ServiceError
from service.kv_events.batches import NumberedBatch, SnapshotChunk

MAX_WAITING_BATCHES = 2048
MAX_WAITING_BYTES = 8 * 2**20
"""Of the batches as they came over the wire; as objects they take some ten times as much."""


class Subscription:
    """First the ``backlog``, then every batch that is ``put``. Owned by the event loop; nothing here blocks.

    Whoever lets too much wait loses it: then, as when the events cannot be followed, ``next`` raises DataLoss.
    """

    def __init__(self, backlog: Iterable[NumberedBatch | SnapshotChunk], rank: int | None = None) -> None:
        """``rank``: the only core whose batches are taken; None: those of all."""
        self._backlog: Iterator[NumberedBatch | SnapshotChunk] = iter(backlog)
        self._rank = rank
        self._waiting: deque[NumberedBatch] = deque()
        self._num_bytes = 0
        self._failure: ServiceError | None = None
        self._is_ended = False
        self._wakeup: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"Subscription({len(self._waiting)} batches of {self._num_bytes} bytes wait)"

    @property
    def has_ended(self) -> bool:
        """Nothing comes any more; what it has failed with is still to be raised."""
        return self._is_ended

    def put(self, batch: NumberedBatch) -> None:
        """Leave ``batch`` for the subscriber, if it wants it."""
        if not self._wants(batch.rank) or self._failure is not None or self._is_ended:
            return
        self._waiting.append(batch)
        self._num_bytes += batch.num_bytes
        if len(self._waiting) > MAX_WAITING_BATCHES or self._num_bytes > MAX_WAITING_BYTES:
            bound = f"at most {MAX_WAITING_BATCHES} batches of {MAX_WAITING_BYTES} bytes may wait to be read"
            self.fail(batch.rank, DataLoss(f"{bound}: subscribe again, and read faster", reason="READS_TOO_SLOWLY"))
        self._wake()

    def fail(self, rank: int, error: ServiceError) -> None:
        """End it with ``error``, if it wants events of ``rank``; what waits is given up. The first error wins."""
        if not self._wants(rank) or self._failure is not None:
            return
        self._failure = error
        self._give_up_waiting()
        self._wake()

    def end(self) -> None:
        """No more will come."""
        self._is_ended = True
        self._give_up_waiting()
        self._wake()

    async def next(self) -> NumberedBatch | SnapshotChunk | None:
        """What comes next, as soon as it is there; None at the end. Raises DataLoss. May be cancelled."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self._is_ended:
                return None
            if (older := next(self._backlog, None)) is not None:
                return older
            if self._waiting:
                batch = self._waiting.popleft()
                self._num_bytes -= batch.num_bytes
                return batch
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup

    async def next_within(self, timeout_s: float) -> NumberedBatch | SnapshotChunk | None:
        """As ``next``; None also if nothing comes for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                return await self.next()
        return None

    def _wants(self, rank: int) -> bool:
        return self._rank is None or rank == self._rank

    def _give_up_waiting(self) -> None:
        self._backlog = iter(())
        self._waiting.clear()
        self._num_bytes = 0

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)
