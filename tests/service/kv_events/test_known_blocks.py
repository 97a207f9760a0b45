"""What can be found, as events tell it."""

import pytest

from core.wire.kv_events import AllBlocksCleared
from service.kv_events.known_blocks import KnownBlocks, TooManyBlocksError
from tests.service.kv_events.events import name_of, removed, stored


def hashes(known: KnownBlocks) -> list[object]:
    return [block.block_hash for block in known.listed()]


def test_stored_removed_cleared() -> None:
    """Blocks come, go one by one, and all at once; those that are not known may go too."""
    known = KnownBlocks()
    known.learn(stored(1, count=3))
    known.learn(removed(3, 9))
    assert hashes(known) == [name_of(1), name_of(2)]
    assert len(known) == 2
    known.learn(AllBlocksCleared())
    assert (hashes(known), len(known)) == ([], 0)


def test_a_block_keeps_what_was_said_of_it() -> None:
    """Its own tokens and keys, and the block before it as its parent."""
    known = KnownBlocks()
    known.learn(stored(5, count=2, parent=4, lora_name="a", extra_keys=[("a", "salt"), None]))
    first, second = known.listed()
    assert (first.parent_block_hash, second.parent_block_hash) == (name_of(4), name_of(5))
    assert ([*first.token_ids], [*second.token_ids]) == ([5, 6], [6, 7])
    assert (first.extra_keys, second.extra_keys) == (("a", "salt"), None)
    assert first.lora_name == "a"


def test_the_salt_of_a_prompt() -> None:
    """Its first block tells it; what is stored later has that of the block before it."""
    known = KnownBlocks()
    assert known.learn(stored(1, lora_name="a", extra_keys=[("a", "salt")])) == "salt"
    assert known.learn(stored(2, count=2, parent=1, lora_name="a", extra_keys=[("a",), ("a",)])) == "salt"
    assert known.learn(stored(7, extra_keys=[None])) is None
    assert known.learn(stored(9, lora_name="a", extra_keys=[("a", b"digest")])) is None
    assert [block.cache_salt for block in known.listed()] == ["salt", "salt", "salt", None, None]


def test_copies_are_counted() -> None:
    """A block that was stored twice can be found until it has been removed twice."""
    known = KnownBlocks()
    for _ in range(3):
        known.learn(stored(1))
    assert hashes(known) == [name_of(1)] * 3
    known.learn(removed(1))
    known.learn(removed(1))
    assert hashes(known) == [name_of(1)]
    known.learn(removed(1))
    assert (hashes(known), len(known)) == ([], 0)


def test_places_are_apart() -> None:
    """What is evicted from one medium, or of one group, may still be in another."""
    known = KnownBlocks()
    known.learn(stored(1))
    known.learn(stored(1, medium="CPU"))
    known.learn(stored(1, group_idx=1))
    known.learn(removed(1))
    assert [(block.medium, block.group_idx) for block in known.listed()] == [("CPU", 0), ("GPU", 1)]


def test_parents_come_first() -> None:
    """Also one that was stored again after its children; a circle, which cannot be, ends."""
    known = KnownBlocks()
    known.learn(stored(1, count=3))
    known.learn(removed(1))
    known.learn(stored(1))
    assert hashes(known) == [name_of(1), name_of(2), name_of(3)]
    known.learn(stored(7, parent=8))
    known.learn(stored(8, parent=7))
    assert sorted(map(str, hashes(known)[3:])) == sorted(map(str, [name_of(7), name_of(8)]))


def test_a_long_prompt() -> None:
    """Its blocks are listed however many there are in a row."""
    known = KnownBlocks()
    for number in reversed(range(5000)):
        known.learn(stored(number, parent=number - 1 if number else None))
    assert hashes(known) == [name_of(number) for number in range(5000)]


def test_what_cannot_be() -> None:
    """Tokens that do not fill the blocks are refused, and so are more blocks than any core has."""
    known = KnownBlocks(max_blocks=4)
    event = stored(1, count=2)
    event.token_ids.pop()
    with pytest.raises(ValueError, match="2 blocks of 2 tokens with 3 tokens"):
        known.learn(event)
    known.learn(stored(0, count=2))
    known.learn(stored(0, count=2))
    with pytest.raises(TooManyBlocksError, match="more than 4 blocks"):
        known.learn(stored(0))


def test_a_list_is_of_its_time() -> None:
    """What is learned while it is read changes nothing in it."""
    known = KnownBlocks()
    known.learn(stored(1, count=3))
    listed = known.listed()
    known.learn(removed(2, 3))
    known.learn(stored(9))
    assert [block.block_hash for block in listed] == [name_of(1), name_of(2), name_of(3)]
