"""Prefixes that every group can go on from."""

from core.block_pool import Block, BlockPool
from core.kv_group import KVGroup
from core.prefix_lookup import find_prefix

HASHES = [bytes([i]) for i in range(8)]


def fill(cached: list[list[int]]) -> tuple[BlockPool, list[list[Block]]]:
    """A pool where of each group the blocks with these indices are cached."""
    pool = BlockPool(64, num_groups=len(cached))
    blocks = [pool.allocate(len(indices)) for indices in cached]
    for group, indices in enumerate(cached):
        for index, block in zip(indices, blocks[group], strict=True):
            pool.remember(block, HASHES[index], group)
    return pool, blocks


def test_one_group_finds_its_first_run() -> None:
    """What comes after a gap is of no use."""
    pool, [blocks] = fill([[0, 1, 2, 4, 5]])
    assert find_prefix(pool, [KVGroup(0, None, 4)], HASHES) == [blocks[:3]]


def test_a_window_needs_its_last_tokens_only() -> None:
    """A window of 6 needs two blocks of 4 before the next token; null blocks stand for those before."""
    pool, [blocks] = fill([[3, 4, 6]])
    null = pool.null_block
    assert find_prefix(pool, [KVGroup(0, 6, 4)], HASHES) == [[null, null, null, blocks[0], blocks[1]]]


def test_all_groups_agree() -> None:
    """Seven blocks suit the first, five or fewer the second, and of those only three the third."""
    pool, [full, window, narrow] = fill([[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 6], [2]])
    groups = [KVGroup(0, None, 4), KVGroup(1, 6, 4), KVGroup(2, 5, 4)]
    null = pool.null_block
    assert find_prefix(pool, groups, HASHES) == [full[:3], [null, *window[1:3]], [null, null, narrow[0]]]


def test_groups_that_never_agree_find_nothing() -> None:
    """Tables are empty then."""
    pool, _ = fill([[0, 1], [3]])
    assert find_prefix(pool, [KVGroup(0, None, 4), KVGroup(1, 5, 4)], HASHES) == [[], []]
    assert find_prefix(pool, [KVGroup(0, None, 4), KVGroup(1, 5, 4)], []) == [[], []]
