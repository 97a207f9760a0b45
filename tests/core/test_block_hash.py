"""Block hashes: equal for equal prefixes, different for everything else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.block_hash import SEED_BYTES, BlockHasher, seed_from
from core.prompt_embeds import PromptEmbeds
from core.wire.tensor import Tensor

SEED = b"a seed"
HASHER = BlockHasher(block_size=4, seed=SEED)
names = st.none() | st.text(max_size=3)


def hashes(token_ids: list[int], hasher: BlockHasher = HASHER, salt: str | None = None) -> list[bytes]:
    found: list[bytes] = []
    hasher.extend(found, hasher.root(salt), token_ids)
    return found


def test_only_full_blocks_have_a_hash() -> None:
    """7 tokens fill one block of 4, 8 fill two."""
    assert len(hashes(list(range(7)))) == 1
    assert len(hashes(list(range(8)))) == 2


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.integers(0, 40))
def test_hashing_in_pieces_gives_the_same_hashes_as_at_once(token_ids: list[int], cut: int) -> None:
    """A prompt hashed on the input thread and grown by output has the hashes of the whole."""
    found: list[bytes] = []
    for part in (token_ids[:cut], token_ids):
        HASHER.extend(found, HASHER.root(), part)
    assert found == hashes(token_ids)


def test_a_hash_stands_for_the_whole_prefix() -> None:
    """Equal blocks after different beginnings have different hashes."""
    assert hashes([1, 1, 1, 1, 5, 6, 7, 8])[1] != hashes([2, 1, 1, 1, 5, 6, 7, 8])[1]


@given(st.tuples(names, names), st.tuples(names, names))
def test_salt_and_adapter_never_collide(
    one: tuple[str | None, str | None], other: tuple[str | None, str | None]
) -> None:
    """Roots are equal only for equal salt and equal adapter: a salt never stands for an adapter's name."""
    assert (HASHER.root(*one) == HASHER.root(*other)) == (one == other)


def test_a_salt_separates_every_block_of_a_request() -> None:
    """No block of a salted prompt is found without the salt."""
    token_ids = list(range(12))
    assert not set(hashes(token_ids)) & set(hashes(token_ids, salt="tenant"))


def hashes_of_rows(rows: Tensor, is_token: list[bool], token_ids: list[int], salt: str | None = None) -> list[bytes]:
    found: list[bytes] = []
    HASHER.extend(found, HASHER.root(salt), token_ids, PromptEmbeds(rows, np.array(is_token)))
    return found


def test_rows_are_part_of_the_hash() -> None:
    """One bit of one row, its type, the mask or the salt: each changes the hash of its block and of those after it."""
    rows = np.arange(32, dtype=np.float32).reshape(8, 4)
    changed = rows.copy()
    changed[5, 3] = np.nextafter(changed[5, 3], 0)
    halves = rows.astype(np.float16)
    variants = [
        hashes_of_rows(Tensor(rows), [False] * 8, [0] * 8),
        hashes_of_rows(Tensor(changed), [False] * 8, [0] * 8),
        hashes_of_rows(Tensor(rows), [False] * 6 + [True] * 2, [0] * 8),
        hashes_of_rows(Tensor(halves), [False] * 8, [0] * 8),
        hashes_of_rows(Tensor(halves.view(np.uint16), "bfloat16"), [False] * 8, [0] * 8),
        hashes_of_rows(Tensor(rows), [False] * 8, [0] * 8, salt="tenant"),
        hashes([0] * 8),
    ]
    assert variants[0][0] == variants[1][0] == variants[2][0]
    assert len({variant[0] for variant in variants}) == len(variants) - 2
    assert len({variant[1] for variant in variants}) == len(variants)


def test_what_is_not_looked_at_is_not_hashed() -> None:
    """A row at a token's position changes nothing; blocks of tokens alone are those of a prompt of tokens."""
    rows = np.ones((8, 4), np.float32)
    others = rows.copy()
    others[:5] = 7
    mask = [True] * 5 + [False] * 3
    token_ids = [1, 2, 3, 4, 5, 0, 0, 0]
    assert hashes_of_rows(Tensor(rows), mask, token_ids) == hashes_of_rows(Tensor(others), mask, token_ids)
    assert hashes_of_rows(Tensor(rows), mask, token_ids)[0] == hashes(token_ids)[0]
    assert len(hashes_of_rows(Tensor(rows), mask, [*token_ids, 9, 9, 9, 9])) == 3


def test_hashes_mean_nothing_in_another_process() -> None:
    """Without a seed every hasher has its own; with the same seed two agree."""
    token_ids = [1, 2, 3, 4]
    assert hashes(token_ids, BlockHasher(4)) != hashes(token_ids, BlockHasher(4))
    assert hashes(token_ids, BlockHasher(4, SEED)) == hashes(token_ids, BlockHasher(4, SEED))


def test_a_seed_from_words() -> None:
    """The same everywhere for the same words; what Python calls random, or nothing, is no seed."""
    assert seed_from("0") == seed_from("0") != seed_from("1")
    assert len(seed_from("x") or b"") == SEED_BYTES
    assert seed_from(None) is seed_from("") is seed_from("random") is None
