"""Drafts: tokens that a step computes on the guess that they come next, and keeps as far as they do.

They are made here, where steps are, and not by the model runner: only when a step has tokens and blocks left that
nobody else wants, and once for all ranks of a model. A draft goes on from tokens that are known, so none can be made
for a step that is scheduled while another one runs.
"""

from core.config import SpeculationConfig
from core.draft_history import DraftHistory
from core.kv_cache import KVCache
from core.prompt_lookup import find_continuation
from core.request import Request
from core.step import Share, Step
from core.wire.stats import SpecDecodingStats


class Speculation:
    """Makes drafts, and counts what becomes of them. Any draft is right to try: the model has the last word."""

    def __init__(self, config: SpeculationConfig, kv_cache: KVCache) -> None:
        self._config = config
        self._kv_cache = kv_cache
        self._stats: SpecDecodingStats | None = None

    def fill(self, step: Step) -> None:
        """Add drafts to ``step`` with what it has left, for requests of which it computes the last token."""
        if not self._config.num_speculative_tokens:
            return
        for position, share in enumerate(step.known_shares):
            request = share.request
            if share.num_tokens == 1 and request.num_scheduled_tokens == request.num_tokens:
                draft = self._draft(request, step.budget)
                if draft and (block_ids := self._kv_cache.grow(request, len(draft))) is not None:
                    step.add_draft(position, draft, block_ids)

    def settle(self, share: Share, num_accepted_tokens: int) -> None:
        """Take back what a draft that was not right computed: the next step writes over it."""
        if not share.num_draft_tokens:
            return
        request, num_rejected_tokens = share.request, share.num_draft_tokens - num_accepted_tokens
        request.num_computed_tokens -= num_rejected_tokens
        request.num_scheduled_tokens -= num_rejected_tokens
        _history_of(request).judge(num_accepted_tokens)
        if self._stats is None:
            self._stats = SpecDecodingStats.of(self._config.num_speculative_tokens)
        self._stats.count(share.num_draft_tokens, num_accepted_tokens)

    def take_stats(self) -> SpecDecodingStats | None:
        """Of the drafts since the last call; None if there were none."""
        stats, self._stats = self._stats, None
        return stats

    def _draft(self, request: Request, budget: int) -> list[int]:
        """What may come after the tokens of ``request``, at most ``budget``; empty if nothing is worth a try.

        No more than the request may still have, but for the one that the model adds. None with a grammar: what that
        allows after a draft is known only when the draft is.
        """
        config, history = self._config, _history_of(request)
        count = min(config.num_speculative_tokens, budget, request.max_num_tokens - request.num_tokens - 1)
        if count <= 0 or request.sampling_params.structured_outputs is not None:
            return []
        if (count := min(count, history.take_turn())) == 0:
            return []
        tokens = history.follow(request.token_ids)
        return find_continuation(tokens, config.prompt_lookup_max, config.prompt_lookup_min, count)


def _history_of(request: Request) -> DraftHistory:
    if request.draft_history is None:
        request.draft_history = DraftHistory()
    return request.draft_history
