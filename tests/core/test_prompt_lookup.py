"""Where the end of the tokens occurred before, and what came then."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.prompt_lookup import find_continuation


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([7, 8, 9, 1, 7, 8], [9, 1, 7]),
        ([1, 2, 3, 4, 2, 3], [4, 2, 3]),
        ([5, 7, 8, 1, 1, 1, 6, 7, 8, 2, 2, 2, 5, 7, 8], [1, 1, 1]),
        ([7, 8, 1, 1, 1, 7, 8, 2, 2, 2, 7, 8], [2, 2, 2]),
        ([1, 2, 1, 2, 1, 2, 1, 2], [1, 2, 1]),
        ([1, 2, 1, 2], [1, 2]),
        ([4, 4, 4], [4]),
        ([9, 8, 1, 8], []),
        ([1, 2, 3], []),
        ([1], []),
    ],
    ids=[
        "what came after",
        "up to the end",
        "the longest end counts",
        "of equal ones the last",
        "the last that has enough after it",
        "or the first",
        "overlapping",
        "too short an end",
        "never before",
        "a single token",
    ],
)
def test_what_followed(tokens: list[int], expected: list[int]) -> None:
    """Up to three tokens after ends of two or three tokens."""
    assert find_continuation(np.array(tokens), longest=3, shortest=2, count=3) == expected


def plain_continuation(tokens: list[int], longest: int, shortest: int, count: int) -> list[int]:
    for length in range(longest, shortest - 1, -1):
        starts = [i + length for i in range(len(tokens) - length) if tokens[i : i + length] == tokens[-length:]]
        if starts:
            full = [start for start in starts if start + count <= len(tokens)]
            start = full[-1] if full else starts[0]
            return tokens[start : start + count]
    return []


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(1, 5), st.integers(1, 5), st.integers(1, 6))
def test_a_plain_search_finds_the_same(tokens: list[int], longest: int, shortest: int, count: int) -> None:
    """Whatever repeats in whatever way."""
    longest = max(longest, shortest)
    found = find_continuation(np.array(tokens), longest, shortest, count)
    assert found == plain_continuation(tokens, longest, shortest, count)
