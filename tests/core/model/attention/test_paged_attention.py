"""Attention over blocks equals attention over what the blocks hold."""

import numpy as np
import pytest
import torch
from torch import Tensor

from core.model.attention.paged_attention import AttentionGroup, PagedAttention
from core.model.attention.paged_kv_cache import PagedKVCache
from core.model.model import AttentionRule
from tests.core.model.tiny_model import TINY

BLOCK_SIZE = 4
PLAIN = AttentionRule(TINY.head_size**-0.5)
RULES = [PLAIN, AttentionRule(0.4, window=3), AttentionRule(0.4, softcap=0.7), AttentionRule(0.4, 5, 2.0)]
RULES.append(AttentionRule(0.4, window=3, sinks=torch.tensor([0.5, -1.0, 2.0, 0.0])))


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


def attend_densely(query: Tensor, key: Tensor, value: Tensor, rule: AttentionRule = PLAIN) -> Tensor:
    """Every token of one sequence, in float64: [tokens, heads * head_size]."""
    query, key, value = query.double(), key.double(), value.double()
    rows = []
    for i in range(len(query)):
        seen = slice(0 if rule.window is None else max(0, i + 1 - rule.window), i + 1)
        heads = []
        for head in range(TINY.num_heads):
            kv_head = head * TINY.num_kv_heads // TINY.num_heads
            scores = key[seen, kv_head] @ query[i, head] * rule.scale
            if rule.softcap is not None:
                scores = rule.softcap * (scores / rule.softcap).tanh()
            if rule.sinks is not None:
                scores = torch.cat((scores, rule.sinks[head : head + 1].double()))
            heads.append(scores.softmax(0)[: seen.stop - seen.start] @ value[seen, kv_head])
        rows.append(torch.cat(heads))
    return torch.stack(rows).float()


def as_array(*rows: list[int]) -> np.ndarray:
    return np.array(rows, np.int64)


@pytest.mark.parametrize("stale", [0.0, 1e30, float("nan"), float("inf")])
@pytest.mark.parametrize("rule", RULES, ids=["plain", "window", "softcap", "both", "sinks"])
def test_prefill_in_chunks_then_decode_beside_others(rule: AttentionRule, stale: float) -> None:
    """Whatever the blocks held before; the second layer does not disturb the first."""
    cache = make_cache(stale)
    long, short = random_qkv(11), random_qkv(3)
    long_blocks, short_blocks = [9, 2, 31], [17]
    expected_long, expected_short = attend_densely(*long, rule), attend_densely(*short, rule)
    results: dict[tuple[str, int], Tensor] = {}
    for start, stop in ((0, 6), (6, 9)):
        group = AttentionGroup(cache, [as_array(long_blocks)], as_array(list(range(start, stop))))
        part = PagedAttention(cache, [group]).attend(1, *(x[start:stop] for x in long), rule)
        torch.testing.assert_close(part, expected_long[start:stop], atol=1e-5, rtol=1e-5)
    group = AttentionGroup(cache, [as_array(short_blocks)], as_array([0]))
    PagedAttention(cache, [group]).attend(1, *(x[:1] for x in short), rule)
    for step in range(2):
        decode = AttentionGroup(cache, [as_array(long_blocks, [*short_blocks, 0, 0])], as_array([9 + step], [1 + step]))
        new = [torch.stack((a[9 + step], b[1 + step])) for a, b in zip(long, short, strict=True)]
        attended = PagedAttention(cache, [decode]).attend(1, *new, rule)
        results["long", step], results["short", step] = attended
    for step in range(2):
        torch.testing.assert_close(results["long", step], expected_long[9 + step], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(results["short", step], expected_short[1 + step], atol=1e-5, rtol=1e-5)


def test_groups_share_a_batch() -> None:
    """A decode group and two prompt chunks; each token attends to its own request alone."""
    cache = make_cache(float("nan"))
    sequences = [random_qkv(length) for length in (5, 7, 4)]
    tables = [[3, 4], [6, 5], [8]]
    first = AttentionGroup(cache, [as_array(tables[0])], as_array([0, 1, 2, 3]))
    PagedAttention(cache, [first]).attend(0, *(x[:4] for x in sequences[0]), PLAIN)
    groups = [
        AttentionGroup(cache, [as_array(tables[0])], as_array([4])),
        AttentionGroup(cache, [as_array(tables[1])], as_array(list(range(7)))),
        AttentionGroup(cache, [as_array(tables[2])], as_array(list(range(4)))),
    ]
    new = [torch.cat((a[4:], b, c)) for a, b, c in zip(*sequences, strict=True)]
    attended = PagedAttention(cache, groups).attend(0, *new, PLAIN)
    expected = [attend_densely(*sequence) for sequence in sequences]
    torch.testing.assert_close(attended, torch.cat((expected[0][4:], *expected[1:])), atol=1e-5, rtol=1e-5)


def test_layers_of_one_step_may_have_other_rules() -> None:
    """Each layer sees by its own; those of one window share what is made for it."""
    sequence = random_qkv(9)
    cache = make_cache(float("nan"))
    attention = PagedAttention(cache, [AttentionGroup(cache, [as_array([7, 3, 5])], as_array(list(range(9))))])
    for layer, rule in enumerate(RULES[:3]):
        expected = attend_densely(*sequence, rule)
        torch.testing.assert_close(attention.attend(layer, *sequence, rule), expected, atol=1e-5, rtol=1e-5)
