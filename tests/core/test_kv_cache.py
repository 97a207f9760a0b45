"""The KV cache: blocks for tokens, and prefixes found again."""

from collections.abc import Sequence

import pytest

from core.block_hash import BlockHasher
from core.kv_cache import KVCache
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
