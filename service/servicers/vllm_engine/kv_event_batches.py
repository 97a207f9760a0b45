"""KV events as routers read them: hashes are 64-bit numbers, and only what a prefix index needs is told."""

from collections.abc import Iterable, Iterator, Sequence

from smg_grpc_proto.generated import common_pb2 as pb

from core.wire.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, ExtraKeys, KVEvent
from service.kv_events.batches import KnownBlock, NumberedBatch, SnapshotChunk

_MAIN_ATTENTION = ("full_attention", "mla_attention", "sink_full_attention")
_TIERS = {
    "GPU": (pb.KV_CACHE_TIER_DEVICE, 0),
    "CPU": (pb.KV_CACHE_TIER_HOST, 1),
    "STORAGE": (pb.KV_CACHE_TIER_DISK, 2),
    "DISK": (pb.KV_CACHE_TIER_DISK, 2),
}
"""By the core's word for the medium: the tier, and the older number for it."""
_MAX_POSITION = 2**63 - 1
_Group = tuple[int, int | None]


class KvEventBatches:
    """For one subscriber. Blocks of sliding windows are left out: that they are there says nothing of a prefix."""

    def __init__(self) -> None:
        self._num_events = 0
        self._side_groups: set[_Group] = set()

    def of(self, item: NumberedBatch | SnapshotChunk) -> pb.KvEventBatch:
        """Without the load."""
        if isinstance(item, SnapshotChunk):
            return self._snapshot_part(item)
        message = pb.KvEventBatch(sequence_number=item.number, timestamp=item.batch.ts, dp_rank=item.rank)
        for event, cache_salt in zip(item.batch.events, item.cache_salts, strict=True):
            self._num_events += 1
            if (told := self._told(event, item.rank, cache_salt)) is not None:
                told.event_id = self._num_events
                message.events.append(told)
        return message

    def _snapshot_part(self, chunk: SnapshotChunk) -> pb.KvEventBatch:
        """It fills an empty cache, one event for each block. Events that no core has sent have the number 0."""
        message = pb.KvEventBatch(sequence_number=chunk.number, dp_rank=chunk.rank)
        message.snapshot.index, message.snapshot.count = chunk.index, chunk.count
        message.snapshot.blocks, message.snapshot.unknown_before = chunk.num_blocks, chunk.num_unknown_batches
        if chunk.index == 0:
            message.events.add().cleared.SetInParent()
        for block in chunk.blocks:
            if self._is_told(block, chunk.rank, block.kv_cache_spec_kind):
                stored = _stored(block, block.cache_salt)
                stored.blocks.append(_block(block, block.block_hash, block.token_ids, block.extra_keys))
                message.events.append(pb.KvCacheEvent(stored=stored))
        return message

    def _told(self, event: KVEvent, rank: int, cache_salt: str | None) -> pb.KvCacheEvent | None:
        match event:
            case BlockStored() if self._is_told(event, rank, event.kv_cache_spec_kind):
                stored = _stored(event, cache_salt)
                stored.blocks.extend(_blocks(event))
                return pb.KvCacheEvent(stored=stored)
            case BlockRemoved() if self._is_told(event, rank, None):
                return pb.KvCacheEvent(removed=_removed(event))
            case AllBlocksCleared():
                return pb.KvCacheEvent(cleared=pb.KvCacheCleared())
        return None

    def _is_told(self, of: BlockStored | BlockRemoved | KnownBlock, rank: int, kind: str | None) -> bool:
        """A removal does not say of what kind its group is: what was stored before has."""
        group = rank, of.group_idx
        if kind is not None and kind not in _MAIN_ATTENTION:
            self._side_groups.add(group)
        return group not in self._side_groups and (of.medium is None or of.medium in _TIERS)


def _stored(of: BlockStored | KnownBlock, cache_salt: str | None) -> pb.KvBlocksStored:
    """Without the blocks."""
    tier, _ = _TIERS[of.medium or "GPU"]
    return pb.KvBlocksStored(
        parent_block_hash=None if of.parent_block_hash is None else _number(of.parent_block_hash),
        tier=tier,
        medium=of.medium,
        group_idx=of.group_idx,
        kv_cache_spec_kind=of.kv_cache_spec_kind,
        kv_cache_spec_sliding_window=of.kv_cache_spec_sliding_window,
        locality=pb.KV_CACHE_LOCALITY_LOCAL,
        lora_name=of.lora_name,
        cache_salt=cache_salt,
    )


def _removed(event: BlockRemoved) -> pb.KvBlocksRemoved:
    tier, level = _TIERS[event.medium or "GPU"]
    return pb.KvBlocksRemoved(
        block_hashes=map(_number, event.block_hashes),
        cache_level=level,
        tier=tier,
        medium=event.medium,
        group_idx=event.group_idx,
        locality=pb.KV_CACHE_LOCALITY_LOCAL,
    )


def _blocks(event: BlockStored) -> Iterator[pb.KvBlock]:
    size, extra_keys = event.block_size, event.extra_keys or []
    for index, block_hash in enumerate(event.block_hashes):
        token_ids = event.token_ids[index * size : (index + 1) * size]
        yield _block(event, block_hash, token_ids, extra_keys[index] if index < len(extra_keys) else None)


def _block(
    of: BlockStored | KnownBlock, block_hash: bytes | int, token_ids: Sequence[int], keys: ExtraKeys | None
) -> pb.KvBlock:
    return pb.KvBlock(
        block_hash=_number(block_hash),
        token_ids=token_ids,
        block_size=of.block_size,
        lora_id=of.lora_id,
        cache_level=_TIERS[of.medium or "GPU"][1],
        extra_keys=_extra_keys(keys or ()),
    )


def _number(block_hash: bytes | int) -> int:
    """The low 64 bits, as vLLM numbers a block, with a sign."""
    unsigned = int.from_bytes(block_hash[-8:], "big") if isinstance(block_hash, bytes) else block_hash % 2**64
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


def _extra_keys(keys: Iterable[object]) -> Iterator[pb.KvBlockExtraKey]:
    """What is of no known kind is left out."""
    for key in keys:
        match key:
            case str():
                yield pb.KvBlockExtraKey(text=key)
            case bytes():
                yield pb.KvBlockExtraKey(blob=key)
            case int() if abs(key) <= _MAX_POSITION:
                yield pb.KvBlockExtraKey(number=key)
            case [str() as identifier, int() as offset] if abs(offset) <= _MAX_POSITION:
                yield pb.KvBlockExtraKey(multimodal=pb.KvMultimodalKey(identifier=identifier, offset=offset))
