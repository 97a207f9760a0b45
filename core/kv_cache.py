"""Which blocks a request's keys and values are in, and which of them it found there already."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from core.block_hash import BlockHash, BlockHasher
from core.block_pool import Block, BlockPool
from core.kv_events import KVEventLog
from core.kv_group import KVGroup
from core.prefix_lookup import find_prefix
from core.request import Request
from core.wire.stats import PrefixCacheStats


class KVCache:
    """Blocks for requests, out of one pool: a request has a table of them for each of ``groups``.

    ``hasher`` None = no prefix cache. ``events`` None = nobody is told.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        hasher: BlockHasher | None,
        events: KVEventLog | None = None,
        groups: Sequence[KVGroup] | None = None,
    ) -> None:
        self.block_size = block_size
        self.groups = groups or [KVGroup(0, None, block_size)]
        self._hasher = hasher
        self._events = events
        self._pool = BlockPool(num_blocks, events.record_removed if events else None, len(self.groups))
        self._stats = PrefixCacheStats()

    def __repr__(self) -> str:
        return f"KVCache(block_size={self.block_size}, {len(self.groups)} groups, {self._pool})"

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
        Of a group with a window that is what the request will hold at once.
        """
        tables = self._find_prefix(request)
        num_hits = len(tables[0])
        found = _interleave(tables, self._pool.null_block)
        lengths = [group.table_length(request.num_tokens, num_hits * self.block_size) for group in self.groups]
        num_new = sum(lengths) - num_hits * len(tables)
        if num_new + sum(block.ref_count == 0 for block in found) > self._pool.num_free:
            return False
        self._pool.hold(found)
        request.block_tables = tables
        self._lengthen(request, lengths)
        request.num_remembered_blocks = num_hits
        request.num_computed_tokens = request.num_scheduled_tokens = num_hits * self.block_size
        self._count_lookup(request)
        return True

    def is_about_to_find_more(self, request: Request, others: Iterable[Request]) -> bool:
        """Whether one of ``others``, which run, is computing a block that ``request`` could go on from.

        A hash names all that comes before it, so the two are alike up to there; how far beyond is for later to see.
        """
        hashes = self._hashes_to_find(request)
        return any(
            other.num_remembered_blocks < min(len(hashes), len(other.block_hashes))
            and hashes[other.num_remembered_blocks] == other.block_hashes[other.num_remembered_blocks]
            for other in others
        )

    def grow(self, request: Request, num_new_tokens: int) -> list[list[int]] | None:
        """The ids of the blocks added, by group, so that ``num_new_tokens`` more fit; None if too few are free.

        Empty if there is room already. Blocks that lie behind the window of all tokens to come are given back first.
        """
        num_tokens = request.num_scheduled_tokens + num_new_tokens
        if num_tokens <= request.num_slots:
            return []
        self._drop_unseen(request)
        known = max(num_tokens, request.num_tokens)
        lengths = [group.table_length(known, request.num_computed_tokens) for group in self.groups]
        num_new = sum(max(n - len(table), 0) for n, table in zip(lengths, request.block_tables, strict=True))
        if num_new > self._pool.num_free:
            return None
        return self._lengthen(request, lengths)

    def remember(self, request: Request) -> None:
        """Let others find the blocks that ``request`` has filled.

        Called after the forward pass that filled them: a pass that fails leaves nothing behind to be found.
        """
        num_full = request.num_computed_tokens // self.block_size
        if self._hasher is None or num_full <= request.num_remembered_blocks:
            return
        self._hasher.extend(request.block_hashes, request.cache_root, request.token_ids, request.embeds)
        first = request.num_remembered_blocks
        for group, table in zip(self.groups, request.block_tables, strict=True):
            is_new = [
                self._pool.remember(table[i], request.block_hashes[i], group.index) for i in range(first, num_full)
            ]
            if self._events is not None:
                self._events.record_stored(request, group, first, is_new)
        request.num_remembered_blocks = num_full

    def release(self, request: Request) -> None:
        """Take the request's blocks back; their contents can be found until they are needed."""
        self._pool.release(_interleave(request.block_tables, self._pool.null_block))
        request.block_tables = []
        request.num_computed_tokens = request.num_scheduled_tokens = request.num_slots = 0

    def forget(self, request: Request) -> None:
        """Let nobody find what the request computed or found, not even in blocks it has given back: do not trust it."""
        self._pool.forget(request.block_hashes[: request.num_remembered_blocks])

    def reset(self) -> bool:
        """Forget every cached prefix. False, and nothing forgotten, while any block is held."""
        if not self.is_unused:
            return False
        self._pool.forget_all()
        if self._events is not None:
            self._events.record_cleared()
        self._stats.reset = True
        return True

    def cached_hashes(self, group_idx: int = 0) -> set[BlockHash]:
        """Of the blocks of a group that can be found: what a listener to the events knows."""
        return set(self._pool.cached(group_idx))

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
        held: list[Block] = []
        for request in requests:
            self._check_tables(request)
            held += _interleave(request.block_tables, self._pool.null_block)
        self._pool.check_integrity(held)

    def _check_tables(self, request: Request) -> None:
        """Each table has the slots that were promised, and its null blocks lie where no token to come sees them."""
        for group, table in zip(self.groups, request.block_tables, strict=False):
            num_null, first = table.count(self._pool.null_block), group.first_seen(request.num_computed_tokens)
            if len(table) * self.block_size < request.num_slots or self._pool.null_block in table[first:]:
                sizes = f"{len(table)} blocks, {num_null} of them null, for {request.num_slots} slots"
                raise RuntimeError(f"{request}, {group}: {sizes}; the first that it sees is {first}")

    def _lengthen(self, request: Request, lengths: Sequence[int]) -> list[list[int]]:
        """Make each table as long as ``lengths`` says; the ids of the blocks that it takes, by group."""
        added = []
        for table, length in zip(request.block_tables, lengths, strict=True):
            blocks = self._pool.allocate(max(length - len(table), 0))
            table += blocks
            added.append([block.block_id for block in blocks])
        request.num_slots = min(map(len, request.block_tables)) * self.block_size
        return added

    def _drop_unseen(self, request: Request) -> None:
        """Give back what no token to come sees. Those of steps in flight count: what they draft may be taken back."""
        null = self._pool.null_block
        for group, table in zip(self.groups, request.block_tables, strict=True):
            index = group.first_seen(request.num_computed_tokens)
            dropped: list[Block] = []
            while index > 0 and table[index - 1] is not null:
                index -= 1
                dropped.append(table[index])
                table[index] = null
            self._pool.release(dropped)

    def _reader_for(self, request: Request) -> BlockHasher | None:
        params = request.sampling_params
        # The log-probabilities of prompt tokens come from computing them.
        return None if params.skip_reading_prefix_cache or params.prompt_logprobs is not None else self._hasher

    def _find_prefix(self, request: Request) -> list[list[Block]]:
        """The beginning of its tables."""
        return find_prefix(self._pool, self.groups, self._hashes_to_find(request))

    def _hashes_to_find(self, request: Request) -> list[BlockHash]:
        """Of the blocks that it may go on from. At least one token is left to compute: its logits are needed."""
        if (hasher := self._reader_for(request)) is None:
            return []
        hasher.extend(request.block_hashes, request.cache_root, request.token_ids, request.embeds)
        return request.block_hashes[: (request.num_tokens - 1) // self.block_size]

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


def _interleave(tables: Sequence[Sequence[Block]], null: Block) -> list[Block]:
    """The blocks of all tables in token order: to lose a prefix in one group is to lose it."""
    if len(tables) == 1:
        return [block for block in tables[0] if block is not null]
    return [block for column in zip_longest(*tables, fillvalue=null) for block in column if block is not null]
