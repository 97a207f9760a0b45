"""The block pool: what is free, what goes first, and what it still remembers."""

import pytest

from core.block_pool import Block, BlockPool


def ids(blocks: list[Block]) -> list[int]:
    return [block.block_id for block in blocks]


def remembered(pool: BlockPool, name: bytes) -> Block:
    [block] = pool.allocate(1)
    pool.remember(block, name)
    return block


def test_the_null_block_is_never_given_out() -> None:
    """Four blocks are three to use: 1, 2 and 3, in that order."""
    pool = BlockPool(4)
    assert ids(pool.allocate(3)) == [1, 2, 3]
    assert pool.num_free == 0
    with pytest.raises(IndexError, match="no free block"):
        pool.allocate(1)


def test_a_freed_block_can_be_found_until_it_is_allocated_again() -> None:
    """Freeing keeps the hash; allocation drops it."""
    pool = BlockPool(2)
    block = remembered(pool, b"x")
    pool.release([block])
    assert pool.cached().get(b"x") is block
    assert pool.allocate(1) == [block]
    assert pool.cached().get(b"x") is None


def test_a_found_block_leaves_the_free_list() -> None:
    """Held again, it is not given to anyone else; its last holder frees it."""
    pool = BlockPool(3)
    block = remembered(pool, b"x")
    pool.release([block])
    pool.hold([block])
    pool.hold([block])
    assert pool.num_free == 1
    assert pool.allocate(1) != [block]
    pool.release([block])
    assert block.ref_count == 1
    pool.release([block])
    assert pool.num_free == 1


def test_blocks_without_hash_go_first_and_a_requests_tail_before_its_beginning() -> None:
    """Of three blocks two are remembered: the nameless one is reused first, then untouched ones, then the tail."""
    pool = BlockPool(5)
    blocks = pool.allocate(3)
    pool.remember(blocks[0], b"0")
    pool.remember(blocks[1], b"1")
    pool.release(blocks)
    assert ids(pool.allocate(4)) == [3, 4, 2, 1]


def test_of_two_equal_blocks_the_first_is_found() -> None:
    """The second one stays nameless, so it is reused first, and reusing it does not lose the first."""
    pool = BlockPool(3)
    first, second = remembered(pool, b"x"), remembered(pool, b"x")
    pool.release([first])
    pool.release([second])
    assert pool.allocate(1) == [second]
    assert pool.cached().get(b"x") is first


def test_forgotten_blocks_are_not_found() -> None:
    """Forgetting one block leaves the others; forgetting all leaves none."""
    pool = BlockPool(4)
    blocks = [remembered(pool, name) for name in (b"a", b"b", b"c")]
    pool.forget([b"a"])
    assert [pool.cached().get(name) for name in (b"a", b"b", b"c")] == [None, *blocks[1:]]
    pool.forget_all()
    assert pool.cached().get(b"b") is None
    pool.check_integrity(blocks)


def test_releasing_a_free_block_is_refused() -> None:
    """A double free is our own bug and says which block."""
    pool = BlockPool(2)
    blocks = pool.allocate(1)
    pool.release(blocks)
    with pytest.raises(AssertionError, match=r"Block\(1"):
        pool.release(blocks)


def test_integrity_names_the_numbers() -> None:
    """A lost holder, a wrong count and a foreign hash are each found."""
    pool = BlockPool(4)
    blocks = pool.allocate(2)
    pool.check_integrity(blocks)
    with pytest.raises(RuntimeError, match=r"1 free .* \+ 1 held != 3 usable"):
        pool.check_integrity(blocks[:1])
    with pytest.raises(RuntimeError, match=r"Block\(2, ref_count=1.*: 2 hold it"):
        pool.check_integrity([*blocks, blocks[1]])
    pool.remember(blocks[0], b"x")
    blocks[0].block_hash = b"y"
    with pytest.raises(RuntimeError, match="not its own"):
        pool.check_integrity(blocks)
