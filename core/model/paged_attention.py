"""Attention of one step over the paged KV cache, in torch's own operations."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from core.model.paged_kv_cache import NULL_SLOT, PagedKVCache

IntArray = NDArray[np.int64]


class AttentionGroup:
    """Requests that attend in one call, because they have equally many new tokens and not too different contexts.

    ``block_tables`` [requests, blocks], padded with the null block; ``positions`` [requests, new tokens].
    """

    def __init__(self, cache: PagedKVCache, block_tables: IntArray, positions: IntArray) -> None:
        block_size = cache.block_size
        context_lens = positions[:, -1:] + 1
        places = np.arange(context_lens.max())
        slots = block_tables[:, places // block_size] * block_size + places % block_size
        self.num_tokens = positions.size
        self.new_slots: IntArray = np.take_along_axis(slots, positions, 1).ravel()
        # Blocks hold what their last owner left there, perhaps NaN, which no mask would stop.
        self._slots = torch.from_numpy(np.where(places < context_lens, slots, NULL_SLOT)).to(cache.device)
        hidden = torch.from_numpy(places > positions[:, None, :, None]).to(cache.device)
        self._mask = torch.zeros(hidden.shape, dtype=cache.dtype, device=cache.device).masked_fill_(hidden, -torch.inf)
        self._cache = cache

    def attend(self, layer: int, query: Tensor) -> Tensor:
        """[tokens, heads * head_size] for ``query`` [tokens, heads, head_size]."""
        key, value = self._cache.gather(layer, self._slots)
        by_request = query.view(self._mask.shape[0], -1, *query.shape[1:])
        attended = functional.scaled_dot_product_attention(
            by_request.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), self._mask, enable_gqa=True
        )
        return attended.transpose(1, 2).reshape(self.num_tokens, -1)


class PagedAttention:
    """The groups' tokens follow each other in the batch in the groups' order."""

    def __init__(self, cache: PagedKVCache, groups: Sequence[AttentionGroup]) -> None:
        self._cache = cache
        self._groups = groups
        self._sizes = [group.num_tokens for group in groups]
        self._new_slots = torch.from_numpy(np.concatenate([group.new_slots for group in groups])).to(cache.device)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self._cache.write(layer, self._new_slots, key, value)
        parts = torch.split(query, self._sizes)
        attended = [group.attend(layer, part) for group, part in zip(self._groups, parts, strict=True)]
        return torch.cat(attended) if len(attended) > 1 else attended[0]
