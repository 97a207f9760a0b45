"""Attention by our own kernels: a decoder's whole step is one call, which reads the paged KV cache where it lies."""

from collections.abc import Sequence

import numpy as np
import torch

from core.model.architecture import ModelShape
from core.model.attention.block_tables import pad_block_tables
from core.model.attention.kv_layout import KVLayout
from core.model.span import Span
from core.native.kernels import Kernels

LANES = 16
"""Block sizes are multiples of this."""


class NativeKVCache:
    """Keys and values in the order in which the kernels read them; ``dtype`` float32 or float16.

    The layers at one place of their groups share their memory: a block belongs to one group at a time.
    """

    def __init__(
        self, kernels: Kernels, shape: ModelShape, num_blocks: int, block_size: int, dtype: torch.dtype
    ) -> None:
        self.layout = KVLayout(shape.windows, shape.max_model_len)
        self.block_size, self.device, self.dtype = block_size, torch.device("cpu"), dtype
        elements = np.uint16 if dtype == torch.float16 else np.float32
        # Zeros that take memory only as blocks come into use.
        kept = np.zeros((2, self.layout.group_size, num_blocks * block_size * shape.kv_size), elements)
        keys, values = ([part[place] for place in self.layout.places] for part in kept)
        self.native = kernels.PagedCache(keys, values, self.layout.groups, block_size)
        self.num_bytes = kept.nbytes


class NativeAttention:
    """Where a step's tokens are in their requests, and those in the cache. ``spans`` are in the order of the rows."""

    def __init__(self, spans: Sequence[Span], cache: NativeKVCache) -> None:
        self.cache = cache.native
        self.spans = np.array([(span.num_tokens, span.start) for span in spans], np.int32)
        num_groups = len(cache.layout.windows)
        self.tables = [pad_block_tables(spans, cache.block_size, group).astype(np.int32) for group in range(num_groups)]
