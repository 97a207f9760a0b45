"""What enters and leaves the prefix cache, told to routers that send requests to where their prefix is."""

import hashlib
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Protocol

from core.block_hash import BlockHash
from core.kv_group import KVGroup
from core.request import Request
from core.wire.kv_events import MEDIUM, AllBlocksCleared, BlockRemoved, BlockStored, ExtraKeys, KVEvent


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
            block_hashes=[*request.block_hashes[start:stop]],
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
