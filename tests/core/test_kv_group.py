"""Which blocks a group of layers needs, against the definition of a window."""

from hypothesis import given
from hypothesis import strategies as st

from core.kv_group import KVGroup

WINDOWS = st.one_of(st.none(), st.integers(1, 40))


def sees(window: int | None, position: int) -> range:
    """The positions that the token at ``position`` sees."""
    return range(0 if window is None else max(0, position - window + 1), position + 1)


@given(WINDOWS, st.integers(1, 7), st.integers(0, 100))
def test_the_first_block_that_is_seen(window: int | None, block_size: int, num_computed: int) -> None:
    """It holds the first position that the next token sees; later tokens see nothing before it."""
    group = KVGroup(0, window, block_size)
    assert group.first_seen(num_computed) == sees(window, num_computed).start // block_size


@given(WINDOWS, st.integers(1, 7), st.sets(st.integers(0, 20)), st.integers(0, 20))
def test_the_longest_hit(window: int | None, block_size: int, cached: set[int], bound: int) -> None:
    """The greatest number of blocks such that all that the next token sees of them are cached."""
    group = KVGroup(0, window, block_size)

    def suits(num_blocks: int) -> bool:
        seen = sees(window, num_blocks * block_size)[:-1]
        return all(position // block_size in cached for position in seen)

    expected = max(count for count in range(bound + 1) if suits(count))
    hashes = [bytes([index]) for index in range(bound)]
    assert group.longest_hit(hashes, {bytes([index]) for index in cached}) == expected


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 20), st.integers(1, 300), st.data())
def test_a_window_holds_a_constant_number(
    window: int, block_size: int, in_flight: int, num_tokens: int, data: st.DataObject
) -> None:
    """Enough for any step from anywhere, and never more than ``max_held``."""
    group = KVGroup(0, window, block_size, in_flight)
    num_computed = data.draw(st.integers(0, num_tokens - 1))
    length = group.table_length(num_tokens, num_computed)
    assert length * block_size >= min(num_computed + in_flight, num_tokens)
    assert length - group.first_seen(num_computed) <= group.max_held(num_tokens)


def test_kinds_by_name() -> None:
    """vLLM's names."""
    assert (KVGroup(0, None, 4).kind, KVGroup(1, 8, 4).kind) == ("full_attention", "sliding_window")
