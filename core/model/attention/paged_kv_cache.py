"""Keys and values of all layers, in blocks that the scheduler hands out."""

import numpy as np
import torch
from torch import Tensor

from core.model.architecture import ModelShape
from core.model.attention.kv_layout import KVLayout

NULL_SLOT = 0
"""First slot of the null block. Never written, so it stays zero: what padding points at."""


class PagedKVCache:
    """Per layer, keys and values [slots, kv_heads, head_size]; slot = block id * ``block_size`` + place in the block.

    A token's heads lie together, so that one copy of a row gathers or writes a token. The layers at one place of their
    groups share their memory: a block belongs to one group at a time.
    """

    def __init__(
        self, architecture: ModelShape, num_blocks: int, block_size: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.layout = KVLayout(architecture.windows, architecture.max_model_len)
        heads = (architecture.num_kv_heads, architecture.head_size)
        shape = (2, self.layout.group_size, num_blocks * block_size, *heads)
        self.block_size, self.device, self.dtype = block_size, device, dtype
        self._keys, self._values = _zeros(shape, device, dtype)

    @property
    def num_bytes(self) -> int:
        """Of keys and values, as they would be with every block in use."""
        return int(self._keys.nbytes + self._values.nbytes)

    @property
    def head_size(self) -> int:
        return int(self._keys.shape[-1])

    def blocks(self, layer: int) -> tuple[Tensor, Tensor]:
        """The keys and values of a layer, [blocks, block_size, kv_heads, head_size], where they are."""
        place = self.layout.places[layer]
        shape = (-1, self.block_size)
        return self._keys[place].unflatten(0, shape), self._values[place].unflatten(0, shape)

    def write(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """Put ``key`` and ``value`` [tokens, kv_heads, head_size], of any dtype, where ``slots`` [tokens] says."""
        place = self.layout.places[layer]
        self._keys[place].index_copy_(0, slots, key.to(self.dtype))
        self._values[place].index_copy_(0, slots, value.to(self.dtype))

    def gather(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Copies [*slots.shape, kv_heads, head_size] of the keys and values in ``slots``."""
        place, flat = self.layout.places[layer], slots.flatten()
        key = self._keys[place].index_select(0, flat)
        value = self._values[place].index_select(0, flat)
        return key.unflatten(0, slots.shape), value.unflatten(0, slots.shape)


def _zeros(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, device=device, dtype=dtype)
    # calloc'd: 2 GiB at once instead of in 5 s, and memory is taken only as blocks come into use.
    raw = np.zeros(np.prod(shape, dtype=np.int64) * dtype.itemsize, np.uint8)
    return torch.from_numpy(raw).view(dtype).view(shape)
