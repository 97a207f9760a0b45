"""What enters and leaves the prefix cache, told as vLLM 0.25.1 tells it to routers that send requests to their prefix.

A batch is a msgpack array, its events are maps tagged with their ``type``.
"""

import hashlib
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Protocol

import msgspec

from core.block_hash import BlockHash
from core.kv_group import KVGroup
from core.request import Request

MEDIUM = "GPU"
"""Where vLLM says that blocks are which requests can use at once, whatever the device."""
ExtraKeys = tuple[Any, ...]
"""Strings and bytes."""


class BlockStored(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """Consecutive blocks that can be found from now on. ``token_ids`` are those of all of them."""

    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None
    """Of the block before the first; None at the start of a prompt."""
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[ExtraKeys | None] | None = None
    """Per block, what tells it apart from others with the same tokens: adapter, salt, digest of its embeddings."""
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class BlockRemoved(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """Blocks that cannot be found any more."""

    block_hashes: list[BlockHash]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """No block can be found any more."""


KVEvent = BlockStored | BlockRemoved | AllBlocksCleared


class KVEventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """The events of one step, in their order. ``ts``: seconds since the epoch."""

    ts: float
    events: list[KVEvent]
    data_parallel_rank: int | None = None


class KVEventSink(Protocol):
    """Who the events go to."""

    def publish(self, events: list[KVEvent], /) -> None: ...

    def close(self) -> None: ...


class KVEventLog:
    """Collects events until ``flush`` hands them to ``publish``. Owned by the busy loop."""

    def __init__(self, block_size: int, publish: Callable[[list[KVEvent]], None]) -> None:
        self._block_size = block_size
        self._publish = publish
        self._events: list[KVEvent] = []

    def record_stored(self, request: Request, group: KVGroup, first: int, is_stored: Sequence[bool]) -> None:
        """``is_stored``: for each block of ``request`` from number ``first`` on, whether it can newly be found."""
        for stored, run in groupby(range(len(is_stored)), key=is_stored.__getitem__):
            indices = [first + offset for offset in run]
            if stored:
                self._events.append(self._make_stored(request, group, indices[0], indices[-1] + 1))

    def record_removed(self, block_hash: BlockHash, group_idx: int) -> None:
        """One block; those of a group that go together are one event."""
        last = self._events[-1] if self._events else None
        if isinstance(last, BlockRemoved) and last.group_idx == group_idx:
            last.block_hashes.append(block_hash)
        else:
            self._events.append(BlockRemoved([block_hash], MEDIUM, group_idx))

    def record_cleared(self) -> None:
        self._events.append(AllBlocksCleared())

    def flush(self) -> None:
        """End of a step."""
        if self._events:
            events, self._events = self._events, []
            self._publish(events)

    def _make_stored(self, request: Request, group: KVGroup, start: int, stop: int) -> BlockStored:
        size, lora = self._block_size, request.lora_request
        extra_keys = [_extra_keys(request, index, size) for index in range(start, stop)]
        return BlockStored(
            block_hashes=request.block_hashes[start:stop],
            parent_block_hash=request.block_hashes[start - 1] if start else None,
            token_ids=request.token_ids[start * size : stop * size],
            block_size=size,
            lora_id=lora.lora_int_id if lora is not None else None,
            medium=MEDIUM,
            lora_name=lora.lora_name if lora is not None else None,
            extra_keys=extra_keys,
            group_idx=group.index,
            kv_cache_spec_kind=group.kind,
            kv_cache_spec_sliding_window=group.window,
        )


def _extra_keys(request: Request, index: int, block_size: int) -> ExtraKeys | None:
    keys: list[str | bytes] = []
    if request.lora_request is not None:
        keys.append(request.lora_request.lora_name)
    if index == 0 and request.cache_salt:
        keys.append(request.cache_salt)
    if request.embeds is not None:
        rows = request.embeds.content(index * block_size, (index + 1) * block_size)
        if rows is not None:
            keys.append(hashlib.sha256(rows).digest())
    return tuple(keys) or None
