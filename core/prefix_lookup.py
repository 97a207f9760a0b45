"""Which cached blocks a request can go on from."""

from collections.abc import Sequence
from itertools import cycle

from core.block_hash import BlockHash
from core.block_pool import Block, BlockPool
from core.kv_group import KVGroup


def find_prefix(pool: BlockPool, groups: Sequence[KVGroup], block_hashes: Sequence[BlockHash]) -> list[list[Block]]:
    """The cached blocks of the longest prefix that every group can go on from, as the first blocks of its table.

    ``block_hashes`` are those of the blocks that may be found. The tables are equally long; a group with a window has
    null blocks in it up to the first block that is needed, whether those are cached or not.
    """
    num_hits, num_agreeing = len(block_hashes), 0
    # What one group cannot go on from, no other may; those that see all are soonest done with a prompt that is new.
    for group in cycle(sorted(groups, key=lambda group: group.window is not None)):
        longest = group.longest_hit(block_hashes[:num_hits], pool.cached(group.index))
        num_agreeing = num_agreeing + 1 if longest == num_hits else 1
        num_hits = longest
        if num_agreeing == len(groups):
            break
    return [_first_blocks(pool, group, block_hashes[:num_hits]) for group in groups]


def _first_blocks(pool: BlockPool, group: KVGroup, block_hashes: Sequence[BlockHash]) -> list[Block]:
    cached, first = pool.cached(group.index), group.first_seen(len(block_hashes) * group.block_size)
    return [pool.null_block] * first + [cached[block_hash] for block_hash in block_hashes[first:]]
