"""What one subscriber has not read yet."""

import asyncio

import pytest

from core.wire.kv_events import KVEventBatch
from service.errors import DataLoss
from service.kv_events.batches import NumberedBatch
from service.kv_events.subscription import MAX_WAITING_BATCHES, MAX_WAITING_BYTES, Subscription
from tests.service.kv_events.events import next_of


def batch(number: int, rank: int = 0, num_bytes: int = 10) -> NumberedBatch:
    return NumberedBatch(rank, number, KVEventBatch(0.0, []), num_bytes)


async def test_in_order() -> None:
    """The backlog, what came meanwhile, what comes while somebody waits, and the end."""
    subscription = Subscription([batch(0), batch(1)])
    subscription.put(batch(2))
    assert [await next_of(subscription) for _ in range(3)] == [batch(0), batch(1), batch(2)]
    waiting = asyncio.ensure_future(next_of(subscription))
    await asyncio.sleep(0)
    subscription.put(batch(3))
    assert await waiting == batch(3)
    subscription.end()
    assert await next_of(subscription) is None


async def test_one_rank() -> None:
    """Of others it takes neither batches nor losses."""
    subscription = Subscription([], rank=1)
    subscription.put(batch(5, rank=0))
    subscription.fail(0, DataLoss("lost"))
    subscription.put(batch(7, rank=1))
    assert await next_of(subscription) == batch(7, rank=1)


async def test_a_cancelled_wait_takes_nothing() -> None:
    """What comes after it is there for the next."""
    subscription = Subscription([])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await subscription.next()
    subscription.put(batch(1))
    assert await next_of(subscription) == batch(1)


@pytest.mark.parametrize(
    ("count", "num_bytes"), [(MAX_WAITING_BATCHES + 1, 1), (5, MAX_WAITING_BYTES // 4), (1, MAX_WAITING_BYTES + 1)]
)
async def test_who_reads_too_slowly_loses_it_all(count: int, num_bytes: int) -> None:
    """What waits is given up at once, not kept for a reader who may never come."""
    subscription = Subscription([batch(0)])
    for number in range(count):
        subscription.put(batch(number, num_bytes=num_bytes))
    assert "0 batches of 0 bytes wait" in repr(subscription)
    with pytest.raises(DataLoss, match="read faster") as raised:
        await next_of(subscription)
    assert raised.value.reason == "READS_TOO_SLOWLY"
    subscription.put(batch(count))
    assert "0 batches" in repr(subscription)


async def test_the_first_loss_counts() -> None:
    """It comes before what waits, which is of no use any more."""
    subscription = Subscription([batch(0)])
    subscription.put(batch(1))
    subscription.fail(0, DataLoss("first"))
    subscription.fail(0, DataLoss("second"))
    with pytest.raises(DataLoss, match="first"):
        await next_of(subscription)
