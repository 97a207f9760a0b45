"""Attention over blocks equals attention over what the blocks hold."""

import numpy as np
import pytest
import torch
from torch import Tensor

from core.model.paged_attention import AttentionGroup, PagedAttention
from core.model.paged_kv_cache import PagedKVCache
from tests.core.model.tiny_model import TINY

BLOCK_SIZE = 4


def make_cache(fill: float) -> PagedKVCache:
    """Full of ``fill``, but for the null block."""
    cache = PagedKVCache(TINY, 32, BLOCK_SIZE, torch.device("cpu"), torch.float32)
    slots = torch.arange(BLOCK_SIZE, 32 * BLOCK_SIZE)
    stale = torch.full((len(slots), TINY.num_kv_heads, TINY.head_size), fill)
    for layer in range(TINY.num_layers):
        cache.write(layer, slots, stale, stale)
    return cache


def random_qkv(num_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    sizes = (TINY.num_heads, TINY.num_kv_heads, TINY.num_kv_heads)
    query, key, value = (torch.randn(num_tokens, size, TINY.head_size) for size in sizes)
    return query, key, value


def attend_densely(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Every token of one sequence, in float64: [tokens, heads * head_size]."""
    query, key, value = query.double(), key.double(), value.double()
    rows = []
    for i in range(len(query)):
        heads = []
        for head in range(TINY.num_heads):
            kv_head = head * TINY.num_kv_heads // TINY.num_heads
            scores = key[: i + 1, kv_head] @ query[i, head] / TINY.head_size**0.5
            heads.append(scores.softmax(0) @ value[: i + 1, kv_head])
        rows.append(torch.cat(heads))
    return torch.stack(rows).float()


def as_array(*rows: list[int]) -> np.ndarray:
    return np.array(rows, np.int64)


@pytest.mark.parametrize("stale", [0.0, 1e30, float("nan"), float("inf")])
def test_prefill_in_chunks_then_decode_beside_others(stale: float) -> None:
    """Whatever the blocks held before; the second layer does not disturb the first."""
    cache = make_cache(stale)
    long, short = random_qkv(11), random_qkv(3)
    long_blocks, short_blocks = [9, 2, 31], [17]
    expected_long, expected_short = attend_densely(*long), attend_densely(*short)
    results: dict[tuple[str, int], Tensor] = {}
    for start, stop in ((0, 6), (6, 9)):
        group = AttentionGroup(cache, as_array(long_blocks), as_array(list(range(start, stop))))
        part = PagedAttention(cache, [group]).attend(1, *(x[start:stop] for x in long))
        torch.testing.assert_close(part, expected_long[start:stop], atol=1e-5, rtol=1e-5)
    group = AttentionGroup(cache, as_array(short_blocks), as_array([0]))
    PagedAttention(cache, [group]).attend(1, *(x[:1] for x in short))
    for step in range(2):
        decode = AttentionGroup(cache, as_array(long_blocks, [*short_blocks, 0, 0]), as_array([9 + step], [1 + step]))
        new = [torch.stack((a[9 + step], b[1 + step])) for a, b in zip(long, short, strict=True)]
        attended = PagedAttention(cache, [decode]).attend(1, *new)
        results["long", step], results["short", step] = attended
    for step in range(2):
        torch.testing.assert_close(results["long", step], expected_long[9 + step], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(results["short", step], expected_short[1 + step], atol=1e-5, rtol=1e-5)


def test_groups_share_a_batch() -> None:
    """A decode group and two prompt chunks; each token attends to its own request alone."""
    cache = make_cache(float("nan"))
    sequences = [random_qkv(length) for length in (5, 7, 4)]
    tables = [[3, 4], [6, 5], [8]]
    first = AttentionGroup(cache, as_array(tables[0]), as_array([0, 1, 2, 3]))
    PagedAttention(cache, [first]).attend(0, *(x[:4] for x in sequences[0]))
    groups = [
        AttentionGroup(cache, as_array(tables[0]), as_array([4])),
        AttentionGroup(cache, as_array(tables[1]), as_array(list(range(7)))),
        AttentionGroup(cache, as_array(tables[2]), as_array(list(range(4)))),
    ]
    new = [torch.cat((a[4:], b, c)) for a, b, c in zip(*sequences, strict=True)]
    attended = PagedAttention(cache, groups).attend(0, *new)
    expected = [attend_densely(*sequence) for sequence in sequences]
    torch.testing.assert_close(attended, torch.cat((expected[0][4:], *expected[1:])), atol=1e-5, rtol=1e-5)
