"""Bringing the batches of one core into order."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from core.wire.kv_events import KVEventBatch
from service.errors import DataLoss
from service.kv_events.batches import NumberedBatch
from service.kv_events.rank_events import RankEvents
from service.kv_events.rank_follower import RankFollower
from tests.service.kv_events.events import name_of, stored


class ScriptedPublisher:
    """Notes what it is asked."""

    def __init__(self, can_repeat: bool) -> None:
        self.can_repeat = can_repeat
        self.asked_from: list[int] = []
        self.asked = asyncio.Event()
        self.is_listened_to = True

    def ask_from(self, number: int) -> None:
        self.asked_from.append(number)
        self.asked.set()

    def forget_question(self) -> None:
        pass

    def listen(self, is_listening: bool) -> None:
        self.is_listened_to = is_listening


class Followed:
    """A follower, and what became of what it was told. Each batch stores the block of its number."""

    def __init__(self, can_repeat: bool = True, patience_s: float = 600.0, silence_s: float = 600.0) -> None:
        self.batches: list[int] = []
        self.losses: list[str] = []
        self.lost = asyncio.Event()
        self.events = RankEvents(0, self._note, lambda _rank, error: self._lose(error))
        self.publisher = ScriptedPublisher(can_repeat)
        self.follower = RankFollower(self.events, self.publisher, patience_s, silence_s)

    def live(self, *numbers: int) -> None:
        self._tell(self.follower.live, numbers)

    def repeat(self, *numbers: int) -> None:
        """And the end of it."""
        self._tell(self.follower.repeated, numbers)
        self.follower.all_repeated()

    def connect(self, *kept: int) -> None:
        self.follower.connected()
        if self.publisher.can_repeat:
            self.repeat(*kept)

    @property
    def known(self) -> list[object]:
        return [block.block_hash for chunk in self.events.state() for block in chunk.blocks]

    @property
    def num_unknown(self) -> int:
        (chunk,) = self.events.state()
        return chunk.num_unknown_batches

    def _tell(self, hearer: Callable[[int, bytes], None], numbers: tuple[int, ...]) -> None:
        for number in numbers:
            hearer(number, msgspec.msgpack.encode(KVEventBatch(0.0, [stored(number)], 0)))

    def _note(self, batch: NumberedBatch) -> None:
        self.batches.append(batch.number)

    def _lose(self, error: DataLoss) -> None:
        self.losses.append(error.message)
        self.lost.set()


async def test_from_the_first_batch_on() -> None:
    """Nothing to repeat, and then batch by batch."""
    followed = Followed()
    followed.connect()
    followed.live(0, 1, 2)
    assert (followed.publisher.asked_from, followed.batches, followed.losses) == ([0], [0, 1, 2], [])


async def test_a_core_that_was_there_before() -> None:
    """What it keeps is repeated at once, and what came live meanwhile is known already."""
    followed = Followed()
    followed.connect(0, 1, 2)
    followed.live(1, 2, 3)
    assert (followed.batches, followed.losses) == ([0, 1, 2, 3], [])
    assert followed.num_unknown == 0


async def test_a_gap_is_filled() -> None:
    """Before anything later is taken: until then nobody listens."""
    followed = Followed()
    followed.connect()
    followed.live(0, 3)
    assert not followed.publisher.is_listened_to
    followed.repeat(1, 2, 3, 4)
    assert followed.publisher.is_listened_to
    followed.live(4, 5)
    assert (followed.publisher.asked_from, followed.batches, followed.losses) == ([0, 1], [0, 1, 2, 3, 4, 5], [])


@pytest.mark.parametrize("repeated", [(), (1, 2), (4, 5)])
async def test_a_gap_that_cannot_be_filled(repeated: tuple[int, ...]) -> None:
    """What was known is given up; what follows is known, and how much before it is not."""
    followed = Followed()
    followed.connect()
    followed.live(0, 5)
    followed.repeat(*repeated)
    assert len(followed.losses) == 1
    assert "were missed and are not kept" in followed.losses[0]
    first = 4 if 4 in repeated else 5
    assert followed.known == [name_of(number) for number in range(first, 6)]
    assert followed.num_unknown == first


async def test_without_anybody_to_ask() -> None:
    """A gap is a loss at once."""
    followed = Followed(can_repeat=False)
    followed.connect()
    followed.live(0, 2)
    assert (followed.batches, len(followed.losses)) == ([0, 2], 1)
    assert followed.publisher.is_listened_to


async def test_no_answer() -> None:
    """Whoever does not answer has nothing: the gap is a loss."""
    followed = Followed(patience_s=0.0)
    followed.connect()
    followed.live(0, 2)
    assert followed.batches == [0]
    async with asyncio.timeout(20):
        await followed.lost.wait()
    assert (followed.batches, len(followed.losses)) == ([0, 2], 1)
    assert followed.publisher.is_listened_to


async def test_another_publisher() -> None:
    """It counts anew: everything is given up, and what it keeps is asked for."""
    followed = Followed()
    followed.connect()
    followed.live(0, 1, 2, 3)
    followed.live(1)
    assert ["began anew" in loss for loss in followed.losses] == [True]
    followed.repeat(0, 1)
    followed.live(2)
    assert followed.batches == [0, 1, 2, 3, 0, 1, 2]
    assert followed.known == [name_of(number) for number in range(3)]


async def test_a_publisher_that_goes() -> None:
    """All is given up at once, also in the middle of a repetition; whoever comes next begins with nothing."""
    followed = Followed()
    followed.connect()
    followed.live(0, 5)
    followed.follower.disconnected()
    assert ["its publisher is gone" in loss for loss in followed.losses] == [True]
    assert (followed.known, followed.events.next_number) == ([], 0)
    followed.follower.disconnected()
    assert len(followed.losses) == 1
    followed.connect()
    followed.live(0)
    assert followed.batches == [0, 0]


async def test_a_batch_that_cannot_be_used() -> None:
    """It is a loss as one that was missed."""
    followed = Followed()
    followed.connect()
    followed.live(0)
    followed.follower.live(1, b"\xc1")
    followed.live(2)
    assert ["batch 1 cannot be used" in loss for loss in followed.losses] == [True]
    assert followed.known == [name_of(2)]
    assert followed.num_unknown == 2


async def test_silence() -> None:
    """It may hide that the last batch was missed: the publisher is asked, once, until it speaks again."""
    followed = Followed(silence_s=0.0)
    followed.connect()
    followed.live(0)
    followed.publisher.asked.clear()
    async with asyncio.timeout(20):
        await followed.publisher.asked.wait()
    followed.repeat(1)
    assert followed.batches == [0, 1]
    num_asked = len(followed.publisher.asked_from)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(followed.publisher.asked_from) == num_asked
    followed.follower.close()


async def test_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Who is told of a publisher that never comes is told once."""
    followed = Followed(silence_s=0.0)
    for _ in range(500):
        await asyncio.sleep(0)
    followed.follower.close()
    warnings = [record.getMessage() for record in caplog.records]
    assert ["nobody publishes the KV events of rank 0" in warning for warning in warnings] == [True]
