"""What is remembered of prompts."""

from hypothesis import given
from hypothesis import strategies as st

from service.cores.prefix_memory import MAX_BLOCKS_PER_PROMPT, PrefixMemory

PROMPTS = st.lists(st.integers(0, 3), max_size=40)


@given(PROMPTS, PROMPTS)
def test_whole_blocks_in_common_are_found(first: list[int], second: list[int]) -> None:
    """A rank has computed the beginning of a prompt if it was sent one with the same first block."""
    memory = PrefixMemory(block_size=4)
    memory.remember(memory.keys_of(first), rank=5)
    shares = len(first) >= 4 and first[:4] == second[:4]
    assert memory.ranks_with(memory.keys_of(second)) == (1 << 5 if shares else 0)


def test_the_longest_beginning_wins() -> None:
    """Ranks that have only less of it are not named."""
    memory = PrefixMemory(block_size=2)
    memory.remember(memory.keys_of([1, 2, 3, 4]), rank=0)
    memory.remember(memory.keys_of([1, 2]), rank=1)
    assert memory.ranks_with(memory.keys_of([1, 2, 9, 9])) == 0b11
    assert memory.ranks_with(memory.keys_of([1, 2, 3, 4, 5])) == 0b01


def test_blocks_stand_where_they_stand() -> None:
    """The same tokens after another beginning, or under another salt, are another block."""
    memory = PrefixMemory(block_size=2)
    keys = [*memory.keys_of([1, 2, 1, 2]), *memory.keys_of([3, 4, 1, 2]), *memory.keys_of([1, 2], "salt")]
    assert len(set(keys)) == len(keys) == 6


def test_memory_is_bounded() -> None:
    """In keys and in keys of one prompt; what was used last is kept, beginnings before what follows them."""
    memory = PrefixMemory(block_size=1, max_keys=10)
    for token_id in range(100):
        memory.remember(memory.keys_of([token_id]), rank=0)
    assert len(memory) == 10
    memory.remember(memory.keys_of([*range(200, 220)]), rank=1)
    assert len(memory) == 10
    assert memory.ranks_with(memory.keys_of([200])) == 0b10
    assert len(memory.keys_of([0] * 10_000)) == MAX_BLOCKS_PER_PROMPT
