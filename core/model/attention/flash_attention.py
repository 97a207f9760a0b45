"""Attention of one step by FlashAttention, as torch has it: blocks are read where they are, none is copied."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.model.attention.block_tables import IntArray, pad_block_tables
from core.model.attention.paged_kv_cache import PagedKVCache
from core.model.model import Attention, AttentionRule
from core.model.span import Span

VarlenAttention = Callable[..., Any]
"""As ``torch.nn.attention.varlen.varlen_attn``."""


def varlen_attn(*args: Any, **kwargs: Any) -> Any:
    """torch's own. It brings torch's compiler, a second of work that a core without FlashAttention is spared."""
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn(*args, **kwargs)


class FlashAttention:
    """``spans`` follow each other in the batch. ``fallback`` makes what computes the rules that the kernel has not."""

    def __init__(
        self,
        spans: Sequence[Span],
        cache: PagedKVCache,
        fallback: Callable[[], Attention],
        varlen: VarlenAttention = varlen_attn,
    ) -> None:
        self._cache = cache
        self._varlen = varlen
        self._make_fallback = fallback
        self._fallback: Attention | None = None
        self._max_new = max(span.num_tokens for span in spans)
        self._max_context = max(span.stop for span in spans)
        self._ends = _int32([0, *np.cumsum([span.num_tokens for span in spans])], cache.device)
        self._context_lens = _int32([span.stop for span in spans], cache.device)
        num_groups = range(len(cache.layout.windows))
        tables = [pad_block_tables(spans, cache.block_size, group) for group in num_groups]
        self._tables = [torch.from_numpy(table.astype(np.int32)).to(cache.device) for table in tables]
        self._new_slots = [
            torch.from_numpy(_new_slots(spans, table, cache.block_size)).to(cache.device) for table in tables
        ]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: AttentionRule) -> Tensor:
        if rule.softcap is not None or rule.sinks is not None:
            self._fallback = self._fallback or self._make_fallback()
            return self._fallback.attend(layer, query, key, value, rule)
        group = self._cache.layout.groups[layer]
        self._cache.write(layer, self._new_slots[group], key, value)
        keys, values = self._cache.blocks(layer)
        attended = self._varlen(
            query,
            keys,
            values,
            self._ends,
            None,
            self._max_new,
            self._max_context,
            scale=rule.scale,
            # How many tokens to the left and to the right a token sees, itself apart.
            window_size=(-1 if rule.window is None else rule.window - 1, 0),
            enable_gqa=True,
            seqused_k=self._context_lens,
            block_table=self._tables[group],
            num_splits=1,  # Else the order of a request's sums would depend on who else is in the step.
        )
        flat: Tensor = attended.reshape(len(query), -1)
        return flat


def check_flash_attention(cache: PagedKVCache, num_heads: int, varlen: VarlenAttention = varlen_attn) -> None:
    """Try it. Raises ValueError if torch cannot here: device, dtype, size of heads or blocks are not to its taste."""
    heads = torch.zeros((1, num_heads, cache.head_size), device=cache.device, dtype=cache.dtype)
    one, ends = _int32([1], cache.device), _int32([0, 1], cache.device)
    try:
        varlen(
            *(heads, *cache.blocks(0), ends, None, 1, 1),
            window_size=(-1, 0),
            enable_gqa=True,
            seqused_k=one,
            block_table=one[None],
            num_splits=1,
        )
    except (RuntimeError, NotImplementedError, ValueError) as error:
        place = f"{cache.dtype} on {cache.device} with blocks of {cache.block_size} tokens"
        reason = str(error).partition(". ")[0].partition("\n")[0]  # Torch goes on with a list of all it has.
        raise ValueError(f"attention_backend must be torch for {place}, got 'flash': {reason}") from error


def _new_slots(spans: Sequence[Span], block_tables: IntArray, block_size: int) -> IntArray:
    """[tokens]: where the new tokens go."""
    rows = np.repeat(np.arange(len(spans)), [span.num_tokens for span in spans])
    positions = np.concatenate([np.arange(span.start, span.stop) for span in spans])
    slots: IntArray = block_tables[rows, positions // block_size] * block_size + positions % block_size
    return slots


def _int32(values: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)
