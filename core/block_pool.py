"""The blocks of the KV cache: who holds which, which are free, and what the free ones still remember."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from core.block_hash import BlockHash


class Block:
    """One block. In the free list if and only if ``ref_count`` is 0; ``block_hash`` names what a full block holds.

    It does so for the layers of one group, ``group_idx``: those of other groups have blocks of their own.
    """

    __slots__ = ("block_hash", "block_id", "group_idx", "next_free", "previous_free", "ref_count")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.block_hash: BlockHash | None = None
        self.group_idx = 0
        self.previous_free: Block = self
        self.next_free: Block = self

    def __repr__(self) -> str:
        return f"Block({self.block_id}, ref_count={self.ref_count}, cached={self.block_hash is not None})"


class FreeList:
    """Free blocks, next victim first. A doubly linked ring, so that a block found by its hash leaves it in O(1)."""

    def __init__(self) -> None:
        self._ends = Block(-1)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Block]:
        block = self._ends.next_free
        while block is not self._ends:
            yield block
            block = block.next_free

    def append(self, block: Block) -> None:
        self._insert_before(self._ends, block)

    def append_left(self, block: Block) -> None:
        self._insert_before(self._ends.next_free, block)

    def pop_left(self) -> Block:
        """The next victim. Raises IndexError if none is free."""
        block = self._ends.next_free
        if block is self._ends:
            raise IndexError("no free block")
        self.remove(block)
        return block

    def remove(self, block: Block) -> None:
        block.previous_free.next_free = block.next_free
        block.next_free.previous_free = block.previous_free
        self._length -= 1

    def _insert_before(self, successor: Block, block: Block) -> None:
        block.previous_free = successor.previous_free
        block.next_free = successor
        successor.previous_free.next_free = block
        successor.previous_free = block
        self._length += 1


class BlockPool:
    """``num_blocks`` blocks. Block 0 is the null block: padding points at it, nobody holds it.

    A freed block keeps its hash and can be found by it until it is allocated again; those freed last go last.
    ``on_forgotten`` is told hash and group of each block that cannot be found any more, but for ``forget_all``.
    """

    def __init__(
        self, num_blocks: int, on_forgotten: Callable[[BlockHash, int], None] | None = None, num_groups: int = 1
    ) -> None:
        self.num_blocks = num_blocks
        self._on_forgotten = on_forgotten
        self._blocks = [Block(block_id) for block_id in range(num_blocks)]
        self._free = FreeList()
        for block in self._blocks[1:]:
            self._free.append(block)
        self._cached: list[dict[BlockHash, Block]] = [{} for _ in range(num_groups)]

    def __repr__(self) -> str:
        return f"BlockPool({self.num_usable} usable, {self.num_free} free, {self.num_cached} cached)"

    @property
    def num_usable(self) -> int:
        return self.num_blocks - 1

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks that can be found, held ones and free ones."""
        return sum(map(len, self._cached))

    @property
    def null_block(self) -> Block:
        """Stands in a block table for a block that is not needed any more."""
        return self._blocks[0]

    def allocate(self, count: int) -> list[Block]:
        """``count`` blocks, each held once and remembering nothing. There must be as many free ones."""
        return [self._take_next() for _ in range(count)]

    def _take_next(self) -> Block:
        block = self._free.pop_left()
        self._forget(block)
        block.ref_count = 1
        return block

    def hold(self, blocks: Iterable[Block]) -> None:
        """Hold blocks found in the cache once more."""
        for block in blocks:
            if block.ref_count == 0:
                self._free.remove(block)
            block.ref_count += 1

    def release(self, blocks: Sequence[Block]) -> None:
        """Let go of one request's blocks, given in token order.

        Its tail is evicted before its beginning, which more requests can share; what has no hash goes first of all.
        """
        for block in reversed(blocks):
            assert block.ref_count > 0, f"{block} is free already"
            block.ref_count -= 1
            if block.ref_count == 0:
                (self._free.append_left if block.block_hash is None else self._free.append)(block)

    def cached(self, group_idx: int = 0) -> Mapping[BlockHash, Block]:
        """All blocks of a group that can be found, held ones and free ones, by their hashes."""
        return self._cached[group_idx]

    def remember(self, block: Block, block_hash: BlockHash, group_idx: int = 0) -> bool:
        """Let ``block`` be found by its hash, unless another one is: of two equal blocks the first stays.

        Whether something can be found now that could not before.
        """
        cached = self._cached[group_idx]
        if block_hash in cached:
            return False
        cached[block_hash] = block
        block.block_hash, block.group_idx = block_hash, group_idx
        return True

    def forget(self, block_hashes: Iterable[BlockHash]) -> None:
        """Let nobody find these again, in no group."""
        for block_hash in block_hashes:
            for cached in self._cached:
                if (block := cached.get(block_hash)) is not None:
                    self._forget(block)

    def forget_all(self) -> None:
        for cached in self._cached:
            for block in cached.values():
                block.block_hash = None
            cached.clear()

    def _forget(self, block: Block) -> None:
        if block.block_hash is not None:
            del self._cached[block.group_idx][block.block_hash]
            if self._on_forgotten is not None:
                self._on_forgotten(block.block_hash, block.group_idx)
            block.block_hash = None

    def check_integrity(self, held: Iterable[Block]) -> None:
        """Raise RuntimeError, with the numbers, unless the pool agrees with ``held``, one entry per holder."""
        holders = Counter(block.block_id for block in held)
        free = {block.block_id for block in self._free}
        if len(free) != self.num_free or len(free) + len(holders) != self.num_usable:
            counts = f"{len(free)} free (counted {self.num_free}) + {len(holders)} held"
            raise RuntimeError(f"{counts} != {self.num_usable} usable blocks, {self.num_cached} of them cached")
        for block in self._blocks:
            num_holders = holders[block.block_id]
            if block.ref_count != num_holders or (block.block_id in free and num_holders > 0):
                raise RuntimeError(f"{block}: {num_holders} hold it, in the free list: {block.block_id in free}")
        self._check_cached()

    def _check_cached(self) -> None:
        named = sum(block.block_hash is not None for block in self._blocks[1:])
        if named != self.num_cached:
            raise RuntimeError(f"{named} blocks have a hash, but {self.num_cached} can be found")
        for group_idx, cached in enumerate(self._cached):
            for block_hash, block in cached.items():
                if (block.block_hash, block.group_idx) != (block_hash, group_idx):
                    raise RuntimeError(f"{block} is found by a hash that is not its own")
