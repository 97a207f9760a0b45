"""Who computes attention, and in what kind of KV cache."""

import logging
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from core.model.attention.block_tables import pad_block_tables
from core.model.attention.flash_attention import FlashAttention, check_flash_attention
from core.model.attention.native_attention import LANES, NativeAttention, NativeKVCache
from core.model.attention.paged_attention import AttentionGroup, PagedAttention
from core.model.attention.paged_kv_cache import PagedKVCache
from core.model.model import Model, StepAttention
from core.model.span import Span

logger = logging.getLogger(__name__)

BACKENDS = ("auto", "native", "torch", "flash")
"""``auto``: our own kernels where they can, else torch's operations; ``flash``: FlashAttention."""

KVCache = PagedKVCache | NativeKVCache
MakeAttention = Callable[[Sequence[Span], Any], StepAttention]
"""Of spans in the order in which their tokens are in the batch, and a cache of the kind that goes with it."""


class AttentionBackend(NamedTuple):
    make_cache: Callable[[int], KVCache]
    """Of so many blocks."""
    attend: MakeAttention


def find_backend(name: str, model: Model, block_size: int) -> AttentionBackend:
    """Raises ValueError for a name that is none, and for one that cannot do it for this model and block size."""
    if name not in BACKENDS:
        raise ValueError(f"attention_backend must be one of {', '.join(BACKENDS)}, got {name!r}")
    hindrance = _native_hindrance(model, block_size)
    if name == "native" and hindrance:
        raise ValueError(f"attention_backend must not be native where {hindrance}")
    if name in ("auto", "native") and not hindrance:
        return _native_backend(model, block_size)
    if name == "auto":
        logger.info("attention by torch's operations: %s", hindrance)

    # Of a model that goes to sleep nothing is held.
    shape, device, dtype = model.architecture, model.device, model.kv_dtype

    def make_cache(num_blocks: int) -> PagedKVCache:
        cache = PagedKVCache(shape, num_blocks, block_size, device, dtype)
        if name == "flash":
            check_flash_attention(cache, shape.num_kv_heads)
        return cache

    return AttentionBackend(make_cache, flash_attention if name == "flash" else paged_attention)


def paged_attention(spans: Sequence[Span], cache: PagedKVCache) -> PagedAttention:
    """By torch's own operations, on any device: those of a kind attend together."""
    groups = [_make_group(list(same), cache) for _, same in groupby(spans, lambda span: span.group_key)]
    return PagedAttention(cache, groups)


def flash_attention(spans: Sequence[Span], cache: PagedKVCache) -> FlashAttention:
    """By FlashAttention: GPUs, and what ``check_flash_attention`` lets pass."""
    return FlashAttention(spans, cache, lambda: paged_attention(spans, cache))


def _native_backend(model: Model, block_size: int) -> AttentionBackend:
    kernels, shape, dtype = model.native_kernels, model.architecture, model.kv_dtype
    assert kernels is not None, "no hindrance"
    return AttentionBackend(
        lambda num_blocks: NativeKVCache(kernels, shape, num_blocks, block_size, dtype), NativeAttention
    )


def _native_hindrance(model: Model, block_size: int) -> str | None:
    """Why a step of the model cannot be one call."""
    if model.native_kernels is None:
        return "the model is not computed by native kernels alone"
    if block_size % LANES:
        return f"block_size is no multiple of {LANES}, but {block_size}"
    return None


def _make_group(spans: Sequence[Span], cache: PagedKVCache) -> AttentionGroup:
    positions = np.array([span.start for span in spans])[:, None] + np.arange(spans[0].num_tokens)
    tables = [pad_block_tables(spans, cache.block_size, group) for group in range(len(cache.layout.windows))]
    return AttentionGroup(cache, tables, positions)
