"""Which cores have computed the beginning of a prompt before, as far as the gateway remembers. Pure: no sockets.

A prompt is looked at block by block, as the prefix caches of the cores do: each block's key is made of its tokens and
of the key before it, the first of the request's cache_salt and adapter. What is kept for a key is the set of ranks, as
bits.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence

MAX_BLOCKS_PER_PROMPT = 128
"""Later blocks are not looked at: prompts that are alike so far are alike enough."""


class PrefixMemory:
    """Keeps the ``max_keys`` keys that were last used, some 200 bytes each."""

    def __init__(self, block_size: int, max_keys: int = 2**16) -> None:
        self._block_size = block_size
        self._max_keys = max_keys
        self._ranks: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ranks)

    def keys_of(self, prompt_token_ids: Sequence[int], salt: Hashable = None) -> list[int]:
        """From the beginning on. A salt is a key of its own: who brings the same one comes back, however short."""
        return [*self._keys(prompt_token_ids, salt)]

    def ranks_with(self, keys: Sequence[int]) -> int:
        """The ranks, as bits, that have the longest known beginning of ``keys``; 0 if nobody has any."""
        found = 0
        for key in keys:
            if not (ranks := self._ranks.get(key, 0)):
                break
            found = ranks
        return found

    def remember(self, keys: Sequence[int], rank: int) -> None:
        """``rank`` computes what ``keys`` stand for."""
        for key in reversed(keys):  # the beginning was then used last, and is forgotten last
            self._ranks[key] = self._ranks.get(key, 0) | 1 << rank
            self._ranks.move_to_end(key)
        while len(self._ranks) > self._max_keys:
            self._ranks.popitem(last=False)

    def forget(self, rank: int) -> None:
        """The cache of ``rank`` is empty now."""
        kept = ((key, ranks & ~(1 << rank)) for key, ranks in self._ranks.items())
        self._ranks = OrderedDict((key, ranks) for key, ranks in kept if ranks)

    def _keys(self, prompt_token_ids: Sequence[int], salt: Hashable) -> Iterator[int]:
        key = hash(salt)
        if salt is not None:
            yield key
        size = self._block_size
        for end in range(size, min(len(prompt_token_ids), size * MAX_BLOCKS_PER_PROMPT) + 1, size):
            key = hash((key, *prompt_token_ids[end - size : end]))
            yield key
