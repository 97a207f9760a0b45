"""What can be found in the prefix cache of one core, as its events tell it."""

from array import array
from collections.abc import Iterator

from core.wire.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent
from service.kv_events.batches import KnownBlock

MAX_BLOCKS = 2**20
"""Of one core, some 400 bytes each. More than a core has, unless it tells of no removal."""
_Place = tuple[str | None, int | None]
_Hash = bytes | int


class TooManyBlocksError(Exception):
    """The core has told of more blocks than it can have."""


class KnownBlocks:
    """By place (medium and group) and hash. vLLM may have several copies of one block, and removes them one by one."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self._max_blocks = max_blocks
        self._places: dict[_Place, dict[_Hash, KnownBlock]] = {}
        self._further_copies: dict[tuple[_Place, _Hash], int] = {}
        self._num_blocks = 0

    def __len__(self) -> int:
        return self._num_blocks

    def learn(self, event: KVEvent) -> str | None:
        """The salt of what it stores. Raises ValueError for what cannot be, TooManyBlocksError for what cannot be true.

        Only the first block of a prompt tells its salt: the others have that of the block before them.
        """
        match event:
            case BlockStored():
                return self._store(event)
            case BlockRemoved():
                for block_hash in event.block_hashes:
                    self._remove((event.medium, event.group_idx), block_hash)
            case AllBlocksCleared():
                self.clear()
        return None

    def clear(self) -> None:
        self._places.clear()
        self._further_copies.clear()
        self._num_blocks = 0

    def listed(self) -> Iterator[KnownBlock]:
        """Every copy, parents before their children, as of now: what is learned later changes nothing.

        Copying 100,000 blocks takes 5 ms, and giving them back one by one fifty times as much.
        """
        places = {place: blocks.copy() for place, blocks in self._places.items()}
        return _listed(places, self._further_copies.copy())

    def _store(self, event: BlockStored) -> str | None:
        place = event.medium, event.group_idx
        blocks = self._places.setdefault(place, {})
        parent = None if event.parent_block_hash is None else blocks.get(event.parent_block_hash)
        cache_salt = _salt_of(event) if parent is None else parent.cache_salt
        for block in _blocks_of(event, cache_salt):
            if blocks.setdefault(block.block_hash, block) is not block:
                key = place, block.block_hash
                self._further_copies[key] = self._further_copies.get(key, 0) + 1
            self._num_blocks += 1
        if self._num_blocks > self._max_blocks:
            raise TooManyBlocksError(f"it has told of more than {self._max_blocks} blocks")
        return cache_salt

    def _remove(self, place: _Place, block_hash: _Hash) -> None:
        blocks = self._places.get(place, {})
        if block_hash not in blocks:
            return
        self._num_blocks -= 1
        num_further = self._further_copies.pop((place, block_hash), 0)
        if num_further > 1:
            self._further_copies[place, block_hash] = num_further - 1
        elif not num_further:
            del blocks[block_hash]


def _listed(
    places: dict[_Place, dict[_Hash, KnownBlock]], further_copies: dict[tuple[_Place, _Hash], int]
) -> Iterator[KnownBlock]:
    for place, blocks in places.items():
        for block in _parents_first(blocks):
            yield block
            for _ in range(further_copies.get((place, block.block_hash), 0)):
                yield block


def _salt_of(event: BlockStored) -> str | None:
    """Of its first block, as vLLM has it: the text among its keys that is not the adapter's name."""
    first_keys = event.extra_keys[0] if event.extra_keys else None
    return next((key for key in first_keys or () if isinstance(key, str) and key != event.lora_name), None)


def _blocks_of(event: BlockStored, cache_salt: str | None) -> Iterator[KnownBlock]:
    size, num_blocks = event.block_size, len(event.block_hashes)
    if size < 1 or len(event.token_ids) != num_blocks * size:
        raise ValueError(f"{num_blocks} blocks of {size} tokens with {len(event.token_ids)} tokens")
    parent, extra_keys = event.parent_block_hash, event.extra_keys or []
    for index, block_hash in enumerate(event.block_hashes):
        yield KnownBlock(
            block_hash,
            parent,
            array("I", event.token_ids[index * size : (index + 1) * size]),
            size,
            event.lora_id,
            event.lora_name,
            event.medium,
            extra_keys[index] if index < len(extra_keys) else None,
            cache_salt,
            event.group_idx,
            event.kv_cache_spec_kind,
            event.kv_cache_spec_sliding_window,
        )
        parent = block_hash


def _parents_first(blocks: dict[_Hash, KnownBlock]) -> Iterator[KnownBlock]:
    """A parent that was evicted and stored again stands after its children in ``blocks``."""
    listed: set[_Hash] = set()
    for block in blocks.values():
        lineage: list[KnownBlock] = []
        ancestor: KnownBlock | None = block
        while ancestor is not None and ancestor.block_hash not in listed:
            listed.add(ancestor.block_hash)
            lineage.append(ancestor)
            parent = ancestor.parent_block_hash
            ancestor = None if parent is None else blocks.get(parent)
        yield from reversed(lineage)
