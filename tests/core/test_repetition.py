"""core.repetition: copies at the end of an output, found token by token."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.repetition import Repetition
from core.wire.sampling_params import RepetitionDetection


def ends_with_copies(output: list[int], wanted: RepetitionDetection) -> bool:
    """By the definition."""
    sizes = range(max(wanted.min_pattern_size, 1), wanted.max_pattern_size + 1)
    tails = [(output[-size * wanted.min_count :], size) for size in sizes if size * wanted.min_count <= len(output)]
    return any(all(copy == rest for copy, rest in pairwise(_parts(tail, size))) for tail, size in tails)


def _parts(tail: list[int], size: int) -> list[list[int]]:
    return [tail[start : start + size] for start in range(0, len(tail), size)]


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), max_size=12),
    st.integers(0, 6),
    st.integers(0, 3),
    st.integers(2, 4),
)
def test_it_is_found_when_it_is_complete(
    pieces: list[list[int]], max_pattern_size: int, min_pattern_size: int, min_count: int
) -> None:
    """After each piece, of one or several tokens, exactly where the definition says; the prompt does not count."""
    wanted = RepetitionDetection(max_pattern_size, min(min_pattern_size, max_pattern_size), min_count)
    watched, token_ids = Repetition(wanted, max_num_tokens=40), [1, 1, 1]
    for piece in pieces:
        token_ids += piece
        assert watched.take(token_ids, 3) == ends_with_copies(token_ids[3:], wanted)


def test_a_huge_pattern_size_costs_no_more_than_the_output_can_be_long() -> None:
    """Nothing is kept for sizes that cannot repeat before the output ends."""
    watched = Repetition(RepetitionDetection(2**62, 0, 2), max_num_tokens=10)
    assert [watched.take([9, *[1, 2, 3, 4, 5] * 2][: 1 + n], 1) for n in range(11)] == [False] * 10 + [True]


@pytest.mark.parametrize("wanted", [(1, 0, 2**64 - 1), (2**64 - 1, 2**63, 2), (2**64 - 1, 2**64 - 1, 2**64 - 1)])
def test_what_cannot_come_is_waited_for(wanted: tuple[int, int, int]) -> None:
    """Numbers as large as the wire carries: no output has so many copies, or copies of that size."""
    watched = Repetition(RepetitionDetection(*wanted), max_num_tokens=10)
    assert not watched.take([9, *[1] * 10], 1)
