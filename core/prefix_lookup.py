"""Which cached blocks a request can go on from."""

from collections.abc import Sequence
from functools import partial
from itertools import cycle

from core.block_hash import BlockHash
from core.block_pool import Block, BlockPool
from core.kv_group import KVGroup


def find_prefix(pool: BlockPool, groups: Sequence[KVGroup], block_hashes: Sequence[BlockHash]) -> list[list[Block]]:
    """The cached blocks of the longest prefix that every group can go on from, as the first blocks of its table.

    ``block_hashes`` are those of the blocks that may be found. The tables are equally long; a group with a window has
    null blocks in it up to the first block that is needed, whether those are cached or not.
    """
    num_hits = _count_hits(pool, groups, block_hashes)
    return [_first_blocks(pool, group, block_hashes[:num_hits]) for group in groups]


def _count_hits(pool: BlockPool, groups: Sequence[KVGroup], block_hashes: Sequence[BlockHash]) -> int:
    """Asks one group after the other until all in a row agree: what one cannot use, no other may."""
    num_hits, num_agreeing = len(block_hashes), 0
    for group in cycle(groups):
        longest = group.longest_hit(num_hits, partial(_is_cached, pool, group, block_hashes))
        num_agreeing = num_agreeing + 1 if longest == num_hits else 1
        num_hits = longest
        if num_agreeing == len(groups):
            break
    return num_hits


def _is_cached(pool: BlockPool, group: KVGroup, block_hashes: Sequence[BlockHash], index: int) -> bool:
    return pool.find(block_hashes[index], group.index) is not None


def _first_blocks(pool: BlockPool, group: KVGroup, block_hashes: Sequence[BlockHash]) -> list[Block]:
    first = group.first_seen(len(block_hashes) * group.block_size)
    found = [pool.find(block_hash, group.index) for block_hash in block_hashes[first:]]
    return [pool.null_block] * first + [block for block in found if block is not None]
