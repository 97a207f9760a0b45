"""Groups of layers that share block tables, and which blocks of a request each of them needs.

A layer that sees the whole context needs all of a request's blocks; one with a sliding window needs those of the last
``window`` tokens. All groups have equally many layers, so that a block of any group takes the same memory and one pool
serves them all: long contexts and many short ones share it as they come. (A pool for each kind of layer would need no
more tables than kinds, but a fixed share for each of them, right for one mix of requests and wrong for the others.)
"""

from collections.abc import Container, Sequence

from core.block_hash import BlockHash


class KVGroup:
    """One group. ``max_tokens_in_flight``: most tokens of one request that are scheduled and not yet computed."""

    def __init__(self, index: int, window: int | None, block_size: int, max_tokens_in_flight: int = 0) -> None:
        self.index = index
        self.window = window
        self.block_size = block_size
        self._max_tokens_in_flight = max_tokens_in_flight

    def __repr__(self) -> str:
        return f"KVGroup({self.index}, window={self.window})"

    @property
    def kind(self) -> str:
        """vLLM's name for its sort of attention."""
        return "full_attention" if self.window is None else "sliding_window"

    def first_seen(self, num_computed_tokens: int) -> int:
        """Index of the first block that any token after the first ``num_computed_tokens`` sees."""
        if self.window is None:
            return 0
        return max(num_computed_tokens - self.window + 1, 0) // self.block_size

    def table_length(self, num_tokens: int, num_computed_tokens: int) -> int:
        """Blocks that a request of ``num_tokens`` has now, those already behind the window counted.

        Each request has a constant number of blocks in the window, as many as its largest step may touch, until its
        tokens end before: as it goes on it gets no more than it gives back, so it never waits for one in its prompt.
        """
        num_blocks = -(-num_tokens // self.block_size)
        if self.window is None:
            return num_blocks
        return min(num_blocks, self.first_seen(num_computed_tokens) + self._num_in_window)

    def max_held(self, num_tokens: int) -> int:
        """Most blocks that a request holds at once on its way to ``num_tokens``."""
        num_blocks = -(-num_tokens // self.block_size)
        return num_blocks if self.window is None else min(num_blocks, self._num_in_window)

    def longest_hit(self, block_hashes: Sequence[BlockHash], cached: Container[BlockHash]) -> int:
        """Of a prompt's blocks, the most to go on from with those that are cached."""
        if self.window is None:
            missing = (index for index, block_hash in enumerate(block_hashes) if block_hash not in cached)
            return next(missing, len(block_hashes))
        num_blocks = len(block_hashes)
        for index in reversed(range(len(block_hashes))):
            if index < self.first_seen(num_blocks * self.block_size):
                break
            if block_hashes[index] not in cached:
                num_blocks = index
        return num_blocks

    @property
    def _num_in_window(self) -> int:
        assert self.window is not None, "asked only of a group with a window"
        # However tokens and blocks are aligned: one block more than they would fill.
        return -(-(self.window - 1 + self._max_tokens_in_flight) // self.block_size) + 1
