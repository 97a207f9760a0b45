"""Which blocks a request's keys and values are in, and which of them it found there already."""

from collections.abc import Iterable

from core.block_hash import BlockHash, BlockHasher
from core.block_pool import Block, BlockPool
from core.kv_events import KVEventLog
from core.request import Request
from core.wire.messages import PrefixCacheStats


class KVCache:
    """Blocks for requests, out of one pool. ``hasher`` None = no prefix cache. ``events`` None = nobody is told."""

    def __init__(
        self, num_blocks: int, block_size: int, hasher: BlockHasher | None, events: KVEventLog | None = None
    ) -> None:
        self.block_size = block_size
        self._hasher = hasher
        self._events = events
        self._pool = BlockPool(num_blocks, events.record_removed if events else None)
        self._stats = PrefixCacheStats()

    def __repr__(self) -> str:
        return f"KVCache(block_size={self.block_size}, {self._pool})"

    @property
    def usage(self) -> float:
        """Held blocks over usable ones, 0..1."""
        return 1.0 - self._pool.num_free / self._pool.num_usable

    @property
    def is_unused(self) -> bool:
        return self._pool.num_free == self._pool.num_usable

    def admit(self, request: Request) -> bool:
        """Give ``request`` blocks for all its tokens, those found in the prefix cache first; False if too few are free.

        All at once, although a chunked prefill needs only some now: what one was promised, the next cannot be given.
        """
        found = self._find_prefix(request)
        num_new = -(-request.num_tokens // self.block_size) - len(found)
        num_found_free = sum(block.ref_count == 0 for block in found)
        if num_new + num_found_free > self._pool.num_free:
            return False
        self._pool.hold(found)
        request.blocks = found + self._pool.allocate(num_new)
        request.num_remembered_blocks = len(found)
        request.num_computed_tokens = request.num_scheduled_tokens = len(found) * self.block_size
        self._count_lookup(request)
        return True

    def grow(self, request: Request, num_new_tokens: int) -> list[int] | None:
        """The ids of the blocks added so that ``num_new_tokens`` more fit; None if too few are free."""
        num_tokens = request.num_scheduled_tokens + num_new_tokens
        num_new = -(-num_tokens // self.block_size) - len(request.blocks)
        if num_new <= 0:
            return []
        if num_new > self._pool.num_free:
            return None
        blocks = self._pool.allocate(num_new)
        request.blocks += blocks
        return [block.block_id for block in blocks]

    def remember(self, request: Request) -> None:
        """Let others find the blocks that ``request`` has filled.

        Called after the forward pass that filled them: a pass that fails leaves nothing behind to be found.
        """
        num_full = request.num_computed_tokens // self.block_size
        if self._hasher is None or num_full <= request.num_remembered_blocks:
            return
        self._hasher.extend(request.block_hashes, request.cache_root, request.token_ids, request.embeds)
        first = request.num_remembered_blocks
        is_new = [self._pool.remember(request.blocks[i], request.block_hashes[i]) for i in range(first, num_full)]
        if self._events is not None:
            self._events.record_stored(request, first, is_new)
        request.num_remembered_blocks = num_full

    def release(self, request: Request) -> None:
        """Take the request's blocks back; their contents can be found until they are needed."""
        self._pool.release(request.blocks)
        request.blocks = []
        request.num_computed_tokens = request.num_scheduled_tokens = 0

    def forget(self, request: Request) -> None:
        """Let nobody find what the request's blocks hold: it is not to be trusted."""
        self._pool.forget(request.blocks)

    def reset(self) -> bool:
        """Forget every cached prefix. False, and nothing forgotten, while any block is held."""
        if not self.is_unused:
            return False
        self._pool.forget_all()
        if self._events is not None:
            self._events.record_cleared()
        self._stats.reset = True
        return True

    @property
    def cached_hashes(self) -> set[BlockHash]:
        """Of the blocks that can be found: what a listener to the events knows."""
        return self._pool.cached_hashes

    def end_step(self) -> None:
        """Tell of the events since the last call."""
        if self._events is not None:
            self._events.flush()

    def take_stats(self) -> PrefixCacheStats:
        """Lookups since the last call."""
        stats, self._stats = self._stats, PrefixCacheStats()
        return stats

    def check_integrity(self, requests: Iterable[Request]) -> None:
        """Raise RuntimeError unless exactly these requests hold exactly the blocks that are not free."""
        self._pool.check_integrity(block for request in requests for block in request.blocks)

    def _reader_for(self, request: Request) -> BlockHasher | None:
        params = request.sampling_params
        # The log-probabilities of prompt tokens come from computing them.
        return None if params.skip_reading_prefix_cache or params.prompt_logprobs is not None else self._hasher

    def _find_prefix(self, request: Request) -> list[Block]:
        """The longest run of cached blocks that leaves at least one token to compute: its logits are needed."""
        found: list[Block] = []
        hasher = self._reader_for(request)
        if hasher is None:
            return found
        hasher.extend(request.block_hashes, request.cache_root, request.token_ids, request.embeds)
        for block_hash in request.block_hashes[: (request.num_tokens - 1) // self.block_size]:
            block = self._pool.find(block_hash)
            if block is None:
                break
            found.append(block)
        return found

    def _count_lookup(self, request: Request) -> None:
        if self._reader_for(request) is None:
            return
        stats, num_hits = self._stats, request.num_computed_tokens
        if request.num_preemptions:
            stats.preempted_requests += 1
            stats.preempted_queries += request.num_tokens
            stats.preempted_hits += num_hits
        else:
            stats.requests += 1
            stats.queries += request.num_tokens
            stats.hits += num_hits
