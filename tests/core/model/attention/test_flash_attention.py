"""FlashAttention reads the cache as torch's own operations do. Its kernel needs a GPU: here it is a plain one."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from core.executor.interface import NewRequest
from core.model.architecture import ModelShape
from core.model.attention.backends import paged_attention
from core.model.attention.flash_attention import FlashAttention, check_flash_attention
from core.model.attention.paged_kv_cache import PagedKVCache
from core.model.model import Attention, AttentionRule
from core.model.request_state import RequestState
from core.model.span import Span
from core.wire.sampling_params import SamplingParams

BLOCK_SIZE, HEADS, KV_HEADS, HEAD_SIZE = 4, 4, 2, 8


def plain_varlen(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    ends: Tensor,
    _: None,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int],
    enable_gqa: bool,
    seqused_k: Tensor,
    block_table: Tensor,
    num_splits: int,
) -> Tensor:
    """By the words of torch's documentation, one request after the other."""
    assert (enable_gqa, num_splits, window_size[1]) == (True, 1, 0)
    assert {ends.dtype, seqused_k.dtype, block_table.dtype} == {torch.int32}
    attended = []
    for index, length in enumerate(seqused_k.tolist()):
        start, end = ends[index : index + 2].tolist()
        assert end - start <= max_q
        assert length <= max_k
        key, value = (kept[block_table[index].long()].flatten(0, 1)[:length] for kept in (keys, values))
        positions, places = torch.arange(length - (end - start), length)[:, None], torch.arange(length)
        seen = (places <= positions) & ((places >= positions - window_size[0]) if window_size[0] >= 0 else True)
        heads = (tensor.transpose(0, 1)[None] for tensor in (query[start:end], key, value))
        part = functional.scaled_dot_product_attention(*heads, seen, scale=scale, enable_gqa=True)
        attended.append(part[0].transpose(0, 1))
    return torch.cat(attended)


def make_cache(windows: Sequence[int | None]) -> PagedKVCache:
    shape = ModelShape("llama", 10, 32, len(windows), KV_HEADS, HEAD_SIZE, 64, tuple(windows))
    return PagedKVCache(shape, 32, BLOCK_SIZE, torch.device("cpu"), torch.float32)


def make_spans(cache: PagedKVCache, sizes: Sequence[tuple[int, int]]) -> list[Span]:
    """Of requests with blocks of their own, which have so many tokens before and compute so many."""
    next_block, spans = 1, []
    for number, (start, count) in enumerate(sizes):
        tables = []
        for _ in cache.layout.windows:
            num_blocks = -(-(start + count) // BLOCK_SIZE)
            tables.append(list(range(next_block, next_block + num_blocks)))
            next_block += num_blocks
        params = SamplingParams()
        new = NewRequest(f"r{number}", [0] * (start + count), start + count, params, 0, tables, start)
        spans.append(Span(RequestState(new), start, count))
    return spans


def run(attention: Attention, windows: Sequence[int | None], num_tokens: int, **rule: Any) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    results = []
    for layer, window in enumerate(windows):
        query = torch.randn((num_tokens, HEADS, HEAD_SIZE), generator=generator)
        key, value = (torch.randn((num_tokens, KV_HEADS, HEAD_SIZE), generator=generator) for _ in range(2))
        results.append(attention.attend(layer, query, key, value, AttentionRule(0.3, window, **rule)))
    return results


@pytest.mark.parametrize("windows", [(None, None), (None, 6)], ids=["all", "a window"])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_a_batch_is_as_by_torch(windows: tuple[int | None, ...], softcap: float | None) -> None:
    """Decodes and prompts in one step, over what earlier steps have left; rules beyond the kernel go another way."""
    caches = [make_cache(windows) for _ in range(2)]
    made = (
        lambda spans, cache: FlashAttention(spans, cache, lambda: paged_attention(spans, cache), plain_varlen),
        paged_attention,
    )
    found = []
    for cache, make in zip(caches, made, strict=True):
        for sizes in ([(0, 9), (0, 3), (0, 14)], [(9, 1), (3, 5), (14, 1)]):
            spans = make_spans(cache, sizes)
            if len({span.num_tokens for span in spans}) == 2:
                spans = [spans[0], spans[2], spans[1]]
            num_tokens = sum(span.num_tokens for span in spans)
            results = run(make(spans, cache), windows, num_tokens, softcap=softcap)
        found.append(results)
    for flash, torchs in zip(*found, strict=True):
        torch.testing.assert_close(flash, torchs, atol=1e-5, rtol=1e-5)


def test_where_it_cannot_be() -> None:
    """A CPU: a sentence at the start."""
    with pytest.raises(ValueError, match=r"attention_backend must be torch for torch\.float32 on cpu with blocks of 4"):
        check_flash_attention(make_cache((None,)), KV_HEADS)
