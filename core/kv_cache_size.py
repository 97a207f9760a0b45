"""How many blocks the KV cache has, and how many tokens that is.

With one group of layers a token takes its part of one block. Where some have a window a long context takes fewer
blocks for each token than a short one, so that tokens are counted for requests of the greatest length.
"""

from bisect import bisect_right
from collections.abc import Sequence

from core.kv_group import KVGroup


class KVCacheSize:
    """``available_bytes`` in blocks of ``block_bytes``, but no more than ``max_num_seqs`` longest requests need.

    Raises ValueError if that is too little for one token of one request and the null block.
    """

    def __init__(
        self, available_bytes: int, block_bytes: int, groups: Sequence[KVGroup], max_num_seqs: int, max_model_len: int
    ) -> None:
        self._groups = groups
        self._max_model_len = max_model_len
        self._block_bytes = block_bytes
        self._num_per_longest = self._count(max_model_len)
        self.num_blocks = min(available_bytes // block_bytes, max_num_seqs * self._num_per_longest + 1)
        if self.num_blocks < 1 + len(groups):
            need = f"at least {1 + len(groups)} blocks of {block_bytes} bytes ({(1 + len(groups)) * block_bytes} bytes)"
            raise ValueError(f"kv_cache_memory: the KV cache needs {need}, got {available_bytes}")

    @property
    def num_bytes(self) -> int:
        return self.num_blocks * self._block_bytes

    @property
    def num_tokens(self) -> int:
        """As vLLM counts them, the null block included; at least a block more than one request can have."""
        block_size = self._groups[0].block_size
        if self.max_request_tokens < self._max_model_len:
            return self.max_request_tokens + block_size
        return self.num_blocks * block_size * -(-self._max_model_len // block_size) // self._num_per_longest

    @property
    def max_concurrency(self) -> float:
        """How many longest requests it holds."""
        return self.num_tokens / self._max_model_len

    @property
    def max_request_tokens(self) -> int:
        """The most tokens, up to ``max_model_len``, that one request can have when all blocks are for it."""
        return bisect_right(range(self._max_model_len + 1), self.num_blocks - 1, key=self._count) - 1

    def _count(self, num_tokens: int) -> int:
        return sum(group.max_held(num_tokens) for group in self._groups)
