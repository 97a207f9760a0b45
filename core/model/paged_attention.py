"""Attention of one step over the paged KV cache, in torch's own operations."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from core.model.model import AttentionRule
from core.model.paged_kv_cache import NULL_SLOT, PagedKVCache

IntArray = NDArray[np.int64]


class _Sight(NamedTuple):
    """What a group's tokens see: ``slots`` [requests, places], and 0 or -inf in ``mask`` [requests, 1, new, places]."""

    slots: Tensor
    mask: Tensor


class AttentionGroup:
    """Requests that attend in one call, because they have equally many new tokens and not too different contexts.

    ``block_tables`` [requests, blocks], padded with the null block; ``positions`` [requests, new tokens].
    """

    def __init__(self, cache: PagedKVCache, block_tables: IntArray, positions: IntArray) -> None:
        block_size = cache.block_size
        self._context_lens: IntArray = positions[:, -1:] + 1
        self._places: IntArray = np.arange(self._context_lens.max())
        self._slots = block_tables[:, self._places // block_size] * block_size + self._places % block_size
        self._positions = positions
        self._cache = cache
        self._sights: dict[int | None, _Sight] = {}
        self.num_tokens = positions.size
        self.new_slots: IntArray = np.take_along_axis(self._slots, positions, 1).ravel()

    def attend(self, layer: int, query: Tensor, rule: AttentionRule) -> Tensor:
        """[tokens, heads * head_size] for ``query`` [tokens, heads, head_size]."""
        slots, mask = self._sights.get(rule.window) or self._look(rule.window)
        key, value = (kept.transpose(1, 2) for kept in self._cache.gather(layer, slots))
        by_request = query.view(mask.shape[0], -1, *query.shape[1:]).transpose(1, 2)
        if rule.softcap is None:
            attended = functional.scaled_dot_product_attention(
                by_request, key, value, mask, scale=rule.scale, enable_gqa=True
            )
        else:
            attended = _attend_capped(by_request, key, value, mask, rule.scale, rule.softcap)
        return attended.transpose(1, 2).reshape(self.num_tokens, -1)

    def _look(self, window: int | None) -> _Sight:
        """Made once a step; the layers of one window share it."""
        oldest = 0 if window is None else max(0, int(self._positions.min()) - window + 1)
        places, positions = self._places[oldest:], self._positions[:, None, :, None]
        # Blocks hold what their last owner left there, perhaps NaN, which no mask would stop.
        slots = np.where(places < self._context_lens, self._slots[:, oldest:], NULL_SLOT)
        hidden = places > positions
        if window is not None:
            hidden |= places <= positions - window
        device = self._cache.device
        mask = torch.zeros(hidden.shape, dtype=self._cache.dtype, device=device)
        mask.masked_fill_(torch.from_numpy(hidden).to(device), -torch.inf)
        self._sights[window] = sight = _Sight(torch.from_numpy(slots).to(device), mask)
        return sight


def _attend_capped(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, softcap: float) -> Tensor:
    """As torch's own, which has no soft-cap: all [requests, heads, tokens, head_size]; the softmax in float32."""
    grouped = query.reshape(len(key), key.shape[1], -1, *query.shape[2:])
    scores = grouped @ key[:, :, None].transpose(-1, -2) * (scale / softcap)
    weights = (scores.tanh_().mul_(softcap) + mask[:, :, None]).softmax(-1, torch.float32)
    return (weights.to(value.dtype) @ value[:, :, None]).view(query.shape)


class PagedAttention:
    """The groups' tokens follow each other in the batch in the groups' order."""

    def __init__(self, cache: PagedKVCache, groups: Sequence[AttentionGroup]) -> None:
        self._cache = cache
        self._groups = groups
        self._sizes = [group.num_tokens for group in groups]
        self._new_slots = torch.from_numpy(np.concatenate([group.new_slots for group in groups])).to(cache.device)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: AttentionRule) -> Tensor:
        self._cache.write(layer, self._new_slots, key, value)
        parts = torch.split(query, self._sizes)
        attended = [group.attend(layer, part, rule) for group, part in zip(self._groups, parts, strict=True)]
        return torch.cat(attended) if len(attended) > 1 else attended[0]
