"""The KV cache: blocks for tokens, and prefixes found again."""

from collections.abc import Callable, Sequence

import pytest

from core.block_hash import BlockHasher
from core.kv_cache import KVCache
from core.kv_group import KVGroup
from core.request import Request
from tests.core.builders import make_request

BLOCK_SIZE = 4


def make_cache(num_blocks: int = 9) -> KVCache:
    return KVCache(num_blocks, BLOCK_SIZE, BlockHasher(BLOCK_SIZE))


def compute(cache: KVCache, request: Request) -> None:
    """As after a forward pass over all its tokens."""
    request.num_computed_tokens = request.num_tokens
    cache.remember(request)


def fill_and_release(cache: KVCache, prompt: Sequence[int]) -> None:
    request = make_request(prompt=prompt)
    assert cache.admit(request)
    compute(cache, request)
    cache.release(request)


def test_blocks_for_the_whole_prompt_are_taken_at_once() -> None:
    """9 tokens in blocks of 4 take three blocks, although nothing is computed yet."""
    cache = make_cache()
    request = make_request(prompt=range(9))
    assert cache.admit(request)
    assert len(request.block_tables[0]) == 3
    assert cache.usage == 3 / 8


def test_a_prompt_that_does_not_fit_takes_nothing() -> None:
    """With two of three blocks free, three are not given, and none is lost."""
    cache = make_cache(num_blocks=4)
    first, second = make_request(prompt=range(3)), make_request(prompt=range(50, 62))
    assert cache.admit(first)
    assert not cache.admit(second)
    assert second.block_tables == []
    cache.check_integrity([first])


def test_growth_adds_a_block_only_when_one_is_full() -> None:
    """The fifth token needs a second block; when none is free, nothing is added."""
    cache = make_cache(num_blocks=3)
    request = make_request(prompt=range(3))
    assert cache.admit(request)
    request.num_scheduled_tokens = 3
    assert cache.grow(request, 1) == []
    request.num_scheduled_tokens = 4
    assert cache.grow(request, 1) == [[2]]
    request.num_scheduled_tokens = 8
    assert cache.grow(request, 1) is None
    assert len(request.block_tables[0]) == 2


@pytest.mark.parametrize(
    ("length", "num_cached"), [(11, 8), (12, 8), (13, 12)], ids=["k blocks - 1", "k blocks", "k blocks + 1"]
)
def test_a_prefix_is_found_up_to_the_last_token(length: int, num_cached: int) -> None:
    """Whole blocks are found, but never all tokens: the last one's logits must be computed."""
    cache = make_cache()
    fill_and_release(cache, range(length))
    again = make_request(prompt=range(length))
    assert cache.admit(again)
    assert again.num_computed_tokens == num_cached
    assert len(again.block_tables[0]) == -(-length // BLOCK_SIZE)


def test_a_shared_prefix_is_held_by_both() -> None:
    """Two requests with the same first block hold the same block, and only the second holder frees it."""
    cache = make_cache()
    first = make_request(prompt=[1, 2, 3, 4, 5])
    assert cache.admit(first)
    compute(cache, first)
    second = make_request(prompt=[1, 2, 3, 4, 6])
    assert cache.admit(second)
    assert second.block_tables[0][0] is first.block_tables[0][0]
    cache.release(first)
    cache.check_integrity([second])


def test_cached_blocks_of_nobody_count_as_free_only_once() -> None:
    """A prompt whose prefix lies in free blocks needs those and its new ones: both must be there."""
    cache = make_cache(num_blocks=4)
    fill_and_release(cache, range(8))
    holder = make_request(prompt=range(90, 94))
    assert cache.admit(holder)
    assert not cache.admit(make_request(prompt=range(13)))
    assert cache.admit(make_request(prompt=range(8)))


def test_blocks_are_found_only_after_the_pass_that_filled_them() -> None:
    """A request admitted while another one's prompt is not computed yet finds nothing of it."""
    cache = make_cache()
    first, second = make_request(prompt=range(8)), make_request(prompt=range(8))
    assert cache.admit(first)
    assert cache.admit(second)
    assert second.num_computed_tokens == 0


def test_what_another_is_about_to_fill_is_seen() -> None:
    """Up to where the two are alike, whole blocks only; and not by who takes nothing from the cache."""
    cache = make_cache(33)
    first, second = make_request(prompt=range(20)), make_request(prompt=[*range(8), 99, 100])
    skipping = make_request(prompt=range(20), skip_reading_prefix_cache=True)
    assert cache.admit(first)
    found = []
    for num_computed_tokens in (0, 3, 4, 7, 8, 20):
        first.num_computed_tokens = num_computed_tokens
        cache.remember(first)
        found.append(cache.is_about_to_find_more(second, [make_request(), first]))
        assert not cache.is_about_to_find_more(skipping, [first])
    assert found == [True, True, True, True, False, False]


def test_lookups_are_counted_when_a_request_is_admitted() -> None:
    """Tokens asked and found, those of preempted requests apart, and nothing for a request that does not look."""
    cache = make_cache()
    fill_and_release(cache, range(12))
    cache.take_stats()
    again = make_request(prompt=range(12))
    again.num_preemptions = 1
    assert cache.admit(again)
    assert cache.admit(make_request(prompt=range(12), skip_reading_prefix_cache=True))
    stats = cache.take_stats()
    assert (stats.requests, stats.queries, stats.hits) == (0, 0, 0)
    assert (stats.preempted_requests, stats.preempted_queries, stats.preempted_hits) == (1, 12, 8)
    assert cache.take_stats().preempted_queries == 0


def test_skip_reading_prefix_cache_computes_everything() -> None:
    """The request finds nothing, and what it computes can still be found by others."""
    cache = make_cache()
    fill_and_release(cache, range(12))
    skipping = make_request(prompt=range(12), skip_reading_prefix_cache=True)
    assert cache.admit(skipping)
    assert skipping.num_computed_tokens == 0


def test_without_hasher_nothing_is_found() -> None:
    """Prefix caching off: the same prompt is computed again, and no lookup is counted."""
    cache = KVCache(9, BLOCK_SIZE, hasher=None)
    fill_and_release(cache, range(12))
    again = make_request(prompt=range(12))
    assert cache.admit(again)
    assert again.num_computed_tokens == 0
    assert cache.take_stats().requests == 0


def test_reset_is_refused_while_a_block_is_held() -> None:
    """Held blocks keep the cache; once all are free it forgets everything and says so in the next statistics."""
    cache = make_cache()
    request = make_request(prompt=range(12))
    assert cache.admit(request)
    compute(cache, request)
    assert not cache.reset()
    cache.release(request)
    assert cache.reset()
    assert cache.take_stats().reset
    again = make_request(prompt=range(12))
    assert cache.admit(again)
    assert again.num_computed_tokens == 0


FULL_AND_WINDOW = [KVGroup(0, None, BLOCK_SIZE, 8), KVGroup(1, 6, BLOCK_SIZE, 8)]


def make_windowed(num_blocks: int = 33) -> KVCache:
    """Two groups: one sees all, one the last 6 tokens. A step has up to 8 tokens."""
    return KVCache(num_blocks, BLOCK_SIZE, BlockHasher(BLOCK_SIZE), groups=FULL_AND_WINDOW)


def prefill(cache: KVCache, request: Request, chunk: int = 8) -> None:
    """Admit and compute the whole prompt, in chunks."""
    assert cache.admit(request)
    while request.num_computed_tokens < request.num_tokens:
        count = min(chunk, request.num_tokens - request.num_computed_tokens)
        assert cache.grow(request, count) is not None
        request.num_scheduled_tokens += count
        request.num_computed_tokens += count
        cache.remember(request)
        cache.check_integrity([request])


def held(request: Request) -> list[list[int]]:
    """By group, which blocks of the request are there."""
    return [[i for i, block in enumerate(table) if block.block_id] for table in request.block_tables]


def test_blocks_behind_the_window_are_given_back() -> None:
    """Of 40 tokens the window group has kept the last ones, and never had more than 5 blocks; the other has all."""
    cache = make_windowed(num_blocks=1 + 10 + 5)
    request = make_request(prompt=range(40))
    prefill(cache, request)
    assert held(request) == [list(range(10)), [6, 7, 8, 9]]
    cache.release(request)
    assert cache.is_unused


def test_a_prompt_is_never_stopped_by_its_window() -> None:
    """What it needs on its way it has from the start: all other blocks are somebody else's."""
    cache = make_windowed(num_blocks=1 + 25 + 5 + 3)
    request, other = make_request(prompt=range(100)), make_request("other", prompt=range(200, 204))
    assert cache.admit(request)
    assert cache.admit(other)
    assert not cache.admit(make_request("third", prompt=range(300, 308)))
    for count in (1, 8, 8, 3, 8, 1, 8):
        assert cache.grow(request, count) is not None
        request.num_scheduled_tokens += count
        request.num_computed_tokens += count
        cache.check_integrity([request, other])


def test_steps_in_flight_keep_what_they_see() -> None:
    """Only computed tokens count, for scheduled ones may be taken back: then the window reaches further back."""
    cache = make_windowed()
    request = make_request(prompt=range(24))
    prefill(cache, request)
    first_kept = held(request)[1][0]
    request.num_scheduled_tokens += 8
    assert cache.grow(request, 1)
    assert held(request)[1][0] == FULL_AND_WINDOW[1].first_seen(request.num_computed_tokens) >= first_kept


def test_what_was_given_back_is_found_until_it_is_needed() -> None:
    """Short prefixes of a long prompt too, as long as nobody took their last blocks."""
    cache = make_windowed(num_blocks=64)
    request = make_request(prompt=range(60))
    prefill(cache, request)
    shorter = make_request(prompt=[*range(20), 99])
    assert cache.admit(shorter)
    assert shorter.num_computed_tokens == 20
    assert held(shorter) == [list(range(6)), [3, 4, 5]]
    cache.check_integrity([request, shorter])
    cache.release(shorter)
    cache.release(request)
    for number in range(8):  # which take every block of the pool once
        other = make_request(prompt=range(100 * number + 100, 100 * number + 130))
        prefill(cache, other)
        cache.release(other)
    assert cache.admit(shorter)
    assert shorter.num_computed_tokens == 0


def test_a_prefix_ends_where_one_group_has_lost_it() -> None:
    """The window group's blocks of the whole prompt are gone, those in its middle are not."""
    cache = make_windowed()
    request = make_request(prompt=range(100, 124))
    prefill(cache, request)
    hashes = list(request.block_hashes)
    cache.release(request)
    cache._pool._forget(cache._pool.cached(1)[hashes[4]])
    again = make_request(prompt=range(100, 124))
    assert cache.admit(again)
    assert again.num_computed_tokens == 16


def test_a_distrusted_request_is_forgotten_in_all_groups() -> None:
    """In blocks that it has given back as well."""
    cache = make_windowed()
    request = make_request(prompt=range(40))
    prefill(cache, request)
    assert cache.cached_hashes(1) == set(request.block_hashes)
    cache.forget(request)
    assert cache.cached_hashes(0) == cache.cached_hashes(1) == set()


def lose(cache: KVCache, request: Request) -> None:
    request.block_tables[1][-1] = cache._pool.null_block


def keep(cache: KVCache, _request: Request) -> None:
    cache._pool.allocate(1)


def share_wrongly(_cache: KVCache, request: Request) -> None:
    request.block_tables[1][-1] = request.block_tables[0][-1]


def shorten(_cache: KVCache, request: Request) -> None:
    request.block_tables[1].pop()


def free_twice(cache: KVCache, request: Request) -> None:
    cache._pool.release(request.block_tables[0][:1])


def hold_null(cache: KVCache, _request: Request) -> None:
    cache._pool.hold([cache._pool.null_block])


def lose_hash(cache: KVCache, request: Request) -> None:
    del cache._pool._cached[0][request.block_hashes[0]]


def mistake_group(_cache: KVCache, request: Request) -> None:
    request.block_tables[1][-1].group_idx = 0


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lose, "KVGroup.1, window=6.: 6 blocks, 3 of them null"),
        (keep, r"21 free .* \+ 10 held != 32 usable blocks"),
        (share_wrongly, r"22 free .* \+ 9 held != 32|2 hold it"),
        (shorten, "5 blocks, 2 of them null, for 24 slots"),
        (free_twice, "23 free .counted 23. . 10 held != 32"),
        (hold_null, r"22 free .counted 21. \+ 10 held != 32"),
        (lose_hash, "blocks have a hash, but"),
        (mistake_group, "is found by a hash that is not its own"),
    ],
)
def test_every_kind_of_leak_is_found(break_it: Callable[[KVCache, Request], None], words: str) -> None:
    """A block lost, held by nobody, by two, or free as well; and what is found under a name that is not its own."""
    cache = make_windowed()
    request = make_request(prompt=range(24))
    prefill(cache, request)
    cache.check_integrity([request])
    break_it(cache, request)
    with pytest.raises(RuntimeError, match=words):
        cache.check_integrity([request])
