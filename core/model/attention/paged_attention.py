"""Attention of one step over the paged KV cache, in torch's own operations."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from core.model.attention.block_tables import IntArray
from core.model.attention.paged_kv_cache import NULL_SLOT, PagedKVCache
from core.model.model import AttentionRule


class _Sight(NamedTuple):
    """What a group's tokens see: ``slots`` [requests, places], and 0 or -inf in ``mask`` [requests, 1, new, places]."""

    slots: Tensor
    mask: Tensor


class AttentionGroup:
    """Requests that attend in one call, because they have equally many new tokens and not too different contexts.

    ``block_tables``, for each group of layers, [requests, blocks], padded with the null block. ``positions``
    [requests, new tokens].
    """

    def __init__(self, cache: PagedKVCache, block_tables: Sequence[IntArray], positions: IntArray) -> None:
        self._cache = cache
        self._block_tables = block_tables
        self._positions = positions
        self._sights: dict[tuple[int, int | None], _Sight] = {}
        self._masks: dict[int | None, Tensor] = {}
        self.num_tokens = positions.size
        self.new_slots = [self._slots(table, positions).ravel() for table in block_tables]
        """For each group of layers, where the new tokens go."""

    def attend(self, layer: int, query: Tensor, rule: AttentionRule) -> Tensor:
        """[tokens, heads * head_size] for ``query`` [tokens, heads, head_size]."""
        layer_group = self._cache.layout.groups[layer]
        slots, mask = self._sights.get((layer_group, rule.window)) or self._look(layer_group, rule.window, query.dtype)
        key, value = (kept.transpose(1, 2).to(query.dtype) for kept in self._cache.gather(layer, slots))
        by_request = query.view(mask.shape[0], -1, *query.shape[1:]).transpose(1, 2)
        if rule.softcap is None and rule.sinks is None:
            attended = functional.scaled_dot_product_attention(
                by_request, key, value, mask, scale=rule.scale, enable_gqa=True
            )
        else:
            attended = _attend_by_hand(by_request, key, value, mask, rule)
        return attended.transpose(1, 2).reshape(self.num_tokens, -1)

    def _look(self, layer_group: int, window: int | None, dtype: torch.dtype) -> _Sight:
        """Made once a step: the layers of a group have the same window."""
        places = self._places(window)
        context_lens = self._positions[:, -1:] + 1
        # Blocks hold what their last owner left there, perhaps NaN, which no mask would stop.
        kept = self._slots(self._block_tables[layer_group], np.minimum(places, context_lens.max() - 1))
        slots = torch.from_numpy(np.where(places < context_lens, kept, NULL_SLOT)).to(self._cache.device)
        if (mask := self._masks.get(window)) is None:
            self._masks[window] = mask = self._make_mask(places, window, dtype)
        self._sights[layer_group, window] = sight = _Sight(slots, mask)
        return sight

    def _places(self, window: int | None) -> IntArray:
        """The positions that each request's new tokens see, and more: [requests, places]; [1, places] of a whole one.

        What lies before a request's window may be another's by now, so that none of it is looked at.
        """
        if window is None:
            return np.arange(self._positions[:, -1].max() + 1)[None]
        oldest = np.maximum(self._positions[:, :1] - window + 1, 0)
        return oldest + np.arange((self._positions[:, -1:] - oldest).max() + 1)

    def _make_mask(self, places: IntArray, window: int | None, dtype: torch.dtype) -> Tensor:
        places, positions = places[:, None, None], self._positions[:, None, :, None]
        hidden = places > positions
        if window is not None:
            hidden |= places <= positions - window
        device = self._cache.device
        mask = torch.zeros(hidden.shape, dtype=dtype, device=device)
        return mask.masked_fill_(torch.from_numpy(hidden).to(device), -torch.inf)

    def _slots(self, block_table: IntArray, positions: IntArray) -> IntArray:
        """Where the requests' tokens at ``positions``, [requests, any] or [1, any], are."""
        block_size = self._cache.block_size
        columns = positions // block_size
        blocks = block_table[:, columns[0]] if len(columns) == 1 else np.take_along_axis(block_table, columns, 1)
        return blocks * block_size + positions % block_size


def _attend_by_hand(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, rule: AttentionRule) -> Tensor:
    """What torch's own has not: soft-caps, sinks. All [requests, heads, tokens, head_size]; the softmax in float32."""
    num_requests, num_kv_heads, num_places, head_size = key.shape
    # The heads that share keys are rows of one product: else they would be copied for each of them.
    rows = query.reshape(num_requests, num_kv_heads, -1, head_size)
    scores = rows @ key.transpose(-1, -2) * (rule.scale / (rule.softcap or 1.0))
    if rule.softcap is not None:
        scores = scores.tanh_().mul_(rule.softcap)
    by_head = scores.view(num_requests, num_kv_heads, -1, query.shape[2], num_places)
    weights = _weigh(by_head + mask[:, :, None], rule.sinks)
    return (weights.to(value.dtype).reshape(scores.shape) @ value).view(query.shape)


def _weigh(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Weights of ``scores`` [requests, kv_heads, heads of each, tokens, places], which sum to 1 with those of sinks."""
    if sinks is None:
        return scores.softmax(-1, torch.float32)
    column = sinks.to(scores.dtype).view(1, *scores.shape[1:3], 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat((scores, column), -1).softmax(-1, torch.float32)[..., :-1]


class PagedAttention:
    """The groups' tokens follow each other in the batch in the groups' order."""

    def __init__(self, cache: PagedKVCache, groups: Sequence[AttentionGroup]) -> None:
        self._cache = cache
        self._groups = groups
        self._sizes = [group.num_tokens for group in groups]
        by_group = zip(*(group.new_slots for group in groups), strict=True)
        self._new_slots = [torch.from_numpy(np.concatenate(slots)).to(cache.device) for slots in by_group]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: AttentionRule) -> Tensor:
        self._cache.write(layer, self._new_slots[self._cache.layout.groups[layer]], key, value)
        parts = torch.split(query, self._sizes)
        attended = [group.attend(layer, part, rule) for group, part in zip(self._groups, parts, strict=True)]
        return torch.cat(attended) if len(attended) > 1 else attended[0]
