"""KV events as messages of sluicegate.v1."""

from collections.abc import Iterable, Iterator

from google.protobuf.timestamp_pb2 import Timestamp

from core.wire.kv_events import BlockRemoved, BlockStored, ExtraKeys, KVEvent
from service.kv_events.batches import KnownBlock, NumberedBatch, SnapshotChunk
from sluicegate.v1 import control_service_pb2 as pb

_NUMBERED_HASH_BYTES = 8
_MAX_POSITION = 2**63 - 1


def to_response(item: NumberedBatch | SnapshotChunk) -> pb.SubscribeKvEventsResponse:
    """One message of a subscription."""
    if isinstance(item, SnapshotChunk):
        return _snapshot_part(item)
    time = Timestamp()
    time.FromNanoseconds(round(item.batch.ts * 1e9))
    return pb.SubscribeKvEventsResponse(
        sequence_number=item.number,
        data_parallel_rank=item.rank,
        time=time,
        events=map(_event, item.batch.events),
    )


def _snapshot_part(chunk: SnapshotChunk) -> pb.SubscribeKvEventsResponse:
    return pb.SubscribeKvEventsResponse(
        sequence_number=chunk.number,
        data_parallel_rank=chunk.rank,
        events=[pb.KvEvent(stored=_stored_block(block)) for block in chunk.blocks],
        snapshot=pb.KvSnapshot(
            index=chunk.index,
            num_parts=chunk.count,
            num_blocks=chunk.num_blocks,
            num_unknown_messages=chunk.num_unknown_batches,
        ),
    )


def _event(event: KVEvent) -> pb.KvEvent:
    match event:
        case BlockStored():
            return pb.KvEvent(stored=_stored(event))
        case BlockRemoved():
            return pb.KvEvent(removed=_removed(event))
        case _:
            return pb.KvEvent(cleared=pb.KvBlocksCleared())


def _removed(event: BlockRemoved) -> pb.KvBlocksRemoved:
    hashes = map(_hash, event.block_hashes)
    return pb.KvBlocksRemoved(block_hashes=hashes, medium=event.medium or "", group_index=event.group_idx or 0)


def _stored(event: BlockStored) -> pb.KvBlocksStored:
    stored = _common(event)
    stored.block_hashes.extend(map(_hash, event.block_hashes))
    if any(event.extra_keys or ()):
        stored.keys.extend(map(_keys, event.extra_keys or ()))
    return stored


def _stored_block(block: KnownBlock) -> pb.KvBlocksStored:
    stored = _common(block)
    stored.block_hashes.append(_hash(block.block_hash))
    if block.extra_keys:
        stored.keys.append(_keys(block.extra_keys))
    return stored


def _common(of: BlockStored | KnownBlock) -> pb.KvBlocksStored:
    parent = of.parent_block_hash
    return pb.KvBlocksStored(
        parent_block_hash=b"" if parent is None else _hash(parent),
        token_ids=of.token_ids,
        block_size=of.block_size,
        lora_name=of.lora_name or "",
        medium=of.medium or "",
        group_index=of.group_idx or 0,
        attention_kind=of.kv_cache_spec_kind or "",
        sliding_window=of.kv_cache_spec_sliding_window or 0,
    )


def _hash(block_hash: bytes | int) -> bytes:
    if isinstance(block_hash, bytes):
        return block_hash
    return (block_hash % 2**64).to_bytes(_NUMBERED_HASH_BYTES, "big")


def _keys(keys: ExtraKeys | None) -> pb.KvBlockKeys:
    return pb.KvBlockKeys(keys=_flat(keys or ()))


def _flat(keys: Iterable[object]) -> Iterator[pb.KvBlockKey]:
    """Of vLLM's pairs of an image and its place, one after the other. What is of no known kind is left out."""
    for key in keys:
        match key:
            case str():
                yield pb.KvBlockKey(text=key)
            case bytes():
                yield pb.KvBlockKey(digest=key)
            case int() if abs(key) <= _MAX_POSITION:
                yield pb.KvBlockKey(position=key)
            case list() | tuple():
                yield from _flat(key)
