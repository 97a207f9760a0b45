"""The KV events of one core, in order and without a gap, or not at all."""

import logging
from collections.abc import Callable, Iterator

from core.wire.codec import WireError
from service.errors import DataLoss, OutOfRange
from service.kv_events.batch_decoder import BatchDecoder
from service.kv_events.batches import NumberedBatch, SnapshotChunk, chunks_of
from service.kv_events.history import History
from service.kv_events.known_blocks import KnownBlocks, TooManyBlocksError

logger = logging.getLogger(__name__)


class RankEvents:
    """What the core of ``rank`` has told so far. ``on_batch`` gets every batch, ``on_loss`` why no more follow."""

    def __init__(
        self, rank: int, on_batch: Callable[[NumberedBatch], None], on_loss: Callable[[int, DataLoss], None]
    ) -> None:
        self.rank = rank
        self.next_number = 0
        """Of the batch that is to come."""
        self._on_batch = on_batch
        self._on_loss = on_loss
        self._num_unknown = 0
        self._known = KnownBlocks()
        self._history = History()
        self._decoder = BatchDecoder()

    def __repr__(self) -> str:
        return f"RankEvents({self.rank}, {self.next_number} batches, {len(self._known)} blocks known)"

    def take(self, payload: bytes) -> None:
        """The next batch."""
        number = self.next_number
        try:
            batch = self._decoder.decode(payload)
            cache_salts = [self._known.learn(event) for event in batch.events]
        except (WireError, ValueError, TooManyBlocksError) as error:
            self.lose(f"batch {number} cannot be used: {error}", number + 1)
            return
        self.next_number += 1
        self._history.add(number, payload)
        self._on_batch(NumberedBatch(self.rank, number, batch, len(payload), cache_salts))

    def lose(self, reason: str, next_number: int = 0) -> None:
        """Nothing that is known holds any more; it goes on with ``next_number``, as with a core never seen before."""
        is_news = self.next_number > 0 or next_number > 0
        self.next_number, self._num_unknown = next_number, next_number
        self._known.clear()
        self._history.clear()
        if is_news:
            logger.warning("KV events of rank %d are lost: %s", self.rank, reason)
            self._on_loss(self.rank, DataLoss(f"KV events of rank {self.rank} are lost: {reason}"))

    def state(self) -> Iterator[SnapshotChunk]:
        """What can be found now, also if it is read later. Empty before the first batch."""
        if self.next_number == 0:
            return iter(())
        known = self._known
        return chunks_of(self.rank, self.next_number - 1, len(known), known.listed(), self._num_unknown)

    def since(self, number: int) -> Iterator[NumberedBatch]:
        """The batches from ``number`` on. Raises OutOfRange if they are not kept, or ``number`` is yet to come."""
        kept = [] if number == self.next_number else self._history.since(number)
        if kept is None or number > self.next_number:
            bound = f"the next batch of rank {self.rank} is {self.next_number}"
            raise OutOfRange(f"start_sequence_number: {bound}, and {number} is not kept", reason="NOT_KEPT")
        return (
            NumberedBatch(self.rank, kept_number, self._decoder.decode(payload), len(payload))
            for kept_number, payload in kept
        )
