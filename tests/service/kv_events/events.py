"""KV events as cores make them, and what tests read of subscriptions."""

import asyncio

from core.wire.kv_events import MEDIUM, BlockRemoved, BlockStored
from service.kv_events.batches import NumberedBatch, SnapshotChunk
from service.kv_events.subscription import Subscription


def stored(first: int, count: int = 1, parent: int | None = None, **fields: object) -> BlockStored:
    """Blocks ``first`` and up, of two tokens each, whose hashes are their numbers."""
    numbers = range(first, first + count)
    given: dict[str, object] = {"lora_id": None, "medium": MEDIUM, "lora_name": None, "group_idx": 0} | fields
    return BlockStored(
        block_hashes=[name_of(number) for number in numbers],
        parent_block_hash=None if parent is None else name_of(parent),
        token_ids=[token for number in numbers for token in (number, number + 1)],
        block_size=2,
        **given,  # type: ignore[arg-type]
    )


def removed(*numbers: int) -> BlockRemoved:
    return BlockRemoved([name_of(number) for number in numbers], MEDIUM, 0)


def name_of(number: int) -> bytes:
    """The hash of block ``number``."""
    return number.to_bytes(16, "big")


async def next_of(subscription: Subscription) -> NumberedBatch | SnapshotChunk | None:
    async with asyncio.timeout(20):
        return await subscription.next()


async def next_batch(subscription: Subscription) -> NumberedBatch:
    item = await next_of(subscription)
    assert isinstance(item, NumberedBatch), item
    return item


async def next_chunk(subscription: Subscription) -> SnapshotChunk:
    item = await next_of(subscription)
    assert isinstance(item, SnapshotChunk), item
    return item
