"""Requests under way: not too many at once, and none for ever while others wait."""

import asyncio

import pytest

from service.admission.read_slots import ReadSlots
from service.errors import QueueFull


class Upload:
    """A request that comes when it is let."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.come = asyncio.Event()

    async def read(self) -> bytes:
        self.begun.set()
        await self.come.wait()
        return b"request"


async def test_others_wait_for_a_slot() -> None:
    """In their order; one that leaves meanwhile is passed over."""
    slots, uploads = ReadSlots(2), [Upload() for _ in range(5)]
    reads = [asyncio.ensure_future(slots.read(upload.read)) for upload in uploads]
    await uploads[1].begun.wait()
    reads[2].cancel()
    with pytest.raises(asyncio.CancelledError):
        await reads[2]
    assert not uploads[3].begun.is_set()
    uploads[0].come.set()
    await uploads[3].begun.wait()
    assert not uploads[4].begun.is_set()
    for upload in uploads:
        upload.come.set()
    assert [await read for read in (reads[0], reads[1], reads[3], reads[4])] == [b"request"] * 4
    assert str(slots) == "ReadSlots(0 of 2 taken, 0 wait)"


async def test_slow_one_gives_way() -> None:
    """It is refused with a delay, and may come again; who waited is read."""
    slots, slow, other = ReadSlots(1, patience_s=0.02), Upload(), Upload()
    slow_read = asyncio.ensure_future(slots.read(slow.read))
    await slow.begun.wait()
    other.come.set()
    assert await slots.read(other.read) == b"request"
    with pytest.raises(QueueFull, match=r"had not come after 0\.\d+ s") as refused:
        await slow_read
    assert refused.value.reason == "READ_TOO_SLOW"
    assert str(slots) == "ReadSlots(0 of 1 taken, 0 wait)"


async def test_each_slow_one_gives_way() -> None:
    """Also who got its slot from one that had to give way, though nobody has come since."""
    slots, slow, other = ReadSlots(1, patience_s=0.02), [Upload(), Upload()], Upload()
    slow_reads = [asyncio.ensure_future(slots.read(upload.read)) for upload in slow]
    await slow[0].begun.wait()
    other.come.set()
    assert await asyncio.wait_for(slots.read(other.read), 30) == b"request"
    for refused in await asyncio.gather(*slow_reads, return_exceptions=True):
        assert isinstance(refused, QueueFull)
    assert str(slots) == "ReadSlots(0 of 1 taken, 0 wait)"


async def test_crowd_that_sends_nothing_holds_up_nobody() -> None:
    """Were each given all the patience there is, who comes last would wait for a hundred times as long."""
    slots, other = ReadSlots(10, patience_s=0.5), Upload()
    crowd = [asyncio.ensure_future(slots.read(Upload().read)) for _ in range(1000)]
    await asyncio.sleep(0)
    other.come.set()
    async with asyncio.timeout(60):
        assert await slots.read(other.read) == b"request"
    for read in crowd[-10:]:
        read.cancel()
    answers = await asyncio.gather(*crowd[:-10], return_exceptions=True)
    assert all(isinstance(answer, QueueFull) for answer in answers)
    assert str(slots) == "ReadSlots(0 of 10 taken, 0 wait)"


async def test_who_leaves_waits_no_more() -> None:
    """Not even as a place in the queue, which thousands that come and go would make long."""
    slots = ReadSlots(1)
    reads = [asyncio.ensure_future(slots.read(Upload().read)) for _ in range(100)]
    await asyncio.sleep(0)
    for read in reads[1:]:
        read.cancel()
    await asyncio.gather(*reads[1:], return_exceptions=True)
    assert str(slots) == "ReadSlots(1 of 1 taken, 0 wait)"
    reads[0].cancel()


async def test_slow_one_alone_has_time() -> None:
    """As long as nobody waits it may take as long as it likes."""
    slots, slow = ReadSlots(1, patience_s=0.0), Upload()
    read = asyncio.ensure_future(slots.read(slow.read))
    await slow.begun.wait()
    await asyncio.to_thread(int)
    slow.come.set()
    assert await read == b"request"


async def test_slot_handed_to_one_that_leaves_is_handed_on() -> None:
    """In the very moment in which it is its turn."""
    slots, uploads = ReadSlots(1), [Upload() for _ in range(3)]
    reads = [asyncio.ensure_future(slots.read(upload.read)) for upload in uploads]
    await uploads[0].begun.wait()
    uploads[0].come.set()
    await reads[0]
    reads[1].cancel()
    uploads[2].come.set()
    assert await reads[2] == b"request"
    with pytest.raises(asyncio.CancelledError):
        await reads[1]
    assert str(slots) == "ReadSlots(0 of 1 taken, 0 wait)"
