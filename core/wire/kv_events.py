"""What enters and leaves a core's prefix cache, as vLLM 0.25.1 publishes it on a PUB socket.

    [topic] [number, 8 bytes big-endian] [batch]
    number   rises by one with every batch of a publisher, from 0
    batch    a msgpack array; its events are maps tagged with their ``type``

vLLM's cores name a block by the low 64 bits of its hash unless told otherwise, ours by all of its bytes.
"""

from typing import Annotated, Any

import msgspec

MEDIUM = "GPU"
"""Where vLLM says that blocks are which requests can use at once, whatever the device."""
NUMBER_BYTES = 8
END_OF_REPLAY = (-1).to_bytes(NUMBER_BYTES, "big", signed=True)
"""In place of a number: no kept batch follows."""
ExtraKeys = tuple[Any, ...]
"""Strings and bytes; of vLLM also pairs of an image and where it stands."""


Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
EpochSeconds = Annotated[float, msgspec.Meta(ge=0, lt=2**37)]


class BlockStored(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """Consecutive blocks that can be found from now on. ``token_ids`` are those of all of them."""

    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    """Of the block before the first; None at the start of a prompt."""
    token_ids: list[TokenId]
    block_size: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    lora_id: Count | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[ExtraKeys | None] | None = None
    """Per block, what tells it apart from others with the same tokens: adapter, salt, digest of its embeddings."""
    group_idx: Count | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: Count | None = None


class BlockRemoved(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """Blocks that cannot be found any more."""

    block_hashes: list[bytes | int]
    medium: str | None
    group_idx: Count | None = None


class AllBlocksCleared(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """No block can be found any more."""


KVEvent = BlockStored | BlockRemoved | AllBlocksCleared


class KVEventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """The events of one step, in their order. ``ts``: seconds since the epoch."""

    ts: EpochSeconds
    events: list[KVEvent]
    data_parallel_rank: Count | None = None
