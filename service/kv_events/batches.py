"""What subscribers get: batches as a core has published them, and snapshots of what batches before these have left."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from core.wire.kv_events import ExtraKeys, KVEventBatch

MAX_BLOCKS_PER_CHUNK = 256
"""Clients limit messages to 4 MiB: a block of 16 tokens takes some 150 bytes in one, a block of 1024 some 4 kB."""


class NumberedBatch(msgspec.Struct, frozen=True, gc=False):
    """Batch ``number`` of the core of ``rank``; ``num_bytes`` as it came over the wire.

    ``cache_salts``: for each event that stores blocks, the salt of the requests that share them, where it is known.
    """

    rank: int
    number: int
    batch: KVEventBatch
    num_bytes: int
    cache_salts: Sequence[str | None] = ()


class KnownBlock(msgspec.Struct, frozen=True, gc=False):
    """One block that can be found, with all that its BlockStored said of it."""

    block_hash: bytes | int
    parent_block_hash: bytes | int | None
    token_ids: Sequence[int]
    block_size: int
    lora_id: int | None
    lora_name: str | None
    medium: str | None
    extra_keys: ExtraKeys | None
    cache_salt: str | None
    group_idx: int | None
    kv_cache_spec_kind: str | None
    kv_cache_spec_sliding_window: int | None


class SnapshotChunk(msgspec.Struct, frozen=True, gc=False):
    """Part ``index`` of the ``count`` parts of what could be found after the batch that the last part's number names.

    Their numbers rise by one, so that the next batch follows on the last part. ``num_blocks``: of all parts.
    ``num_unknown_batches``: how many batches before the first that was seen nobody here knows.
    """

    rank: int
    number: int
    index: int
    count: int
    blocks: Sequence[KnownBlock]
    num_blocks: int
    num_unknown_batches: int


def chunks_of(
    rank: int, last_number: int, num_blocks: int, blocks: Iterable[KnownBlock], num_unknown: int
) -> Iterator[SnapshotChunk]:
    """At least one; never more than there are numbers up to ``last_number``. ``blocks`` are taken chunk by chunk."""
    count = max(1, min(-(-num_blocks // MAX_BLOCKS_PER_CHUNK), last_number + 1))
    remaining = iter(blocks)
    for index in range(count):
        size = num_blocks * (index + 1) // count - num_blocks * index // count
        part = [*islice(remaining, size)]
        yield SnapshotChunk(rank, last_number - count + 1 + index, index, count, part, num_blocks, num_unknown)
