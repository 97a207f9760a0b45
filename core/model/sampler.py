"""Chooses one token for each row of logits, in vLLM's order.

log-probabilities of the raw logits
→ the grammar's mask → allowed_token_ids → bad_words → min_tokens → logit_bias → penalties
→ greedy rows: the most likely token; others: temperature → min_p → top_k → top_p → draw
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from core.model.logits_processors import AllowedTokens, BadWords, LogitBias, LogitsProcessor, MinTokens, TokenMask
from core.model.logprobs import RequestedLogprobs
from core.model.penalties import Penalties
from core.model.random_rows import RandomRows
from core.model.request_state import RequestState
from core.model.rows import Row, Rows
from core.wire.messages import LogprobsLists


class Sampled(NamedTuple):
    """``token_ids`` one per row; the others only for rows with something to report, by row."""

    token_ids: list[int]
    logprobs: dict[int, LogprobsLists]
    num_nans: dict[int, int]
    no_possible_token: list[int]


class Sampler:
    """Keeps what the composition of the batch decides until the composition changes."""

    def __init__(self) -> None:
        self._requests: list[RequestState] = []

    def sample(self, logits: Tensor, rows: Sequence[Row], mask: TokenMask | None = None) -> Sampled:
        """Row i of ``logits`` [rows, vocab_size] belongs to ``rows[i]``. The logits are changed.

        A token is that of its row alone: whatever the others are, and whether the tokens before it were chosen in
        earlier calls or are drafts in ``request.token_ids``. ``mask``: what a grammar leaves to some of the rows.
        """
        logits, batch = logits.float(), Rows(rows)
        if batch.requests != self._requests:
            self._compose(batch, logits)
        num_nans = _count_nans(logits)
        logprobs = self._logprobs.compute(logits)
        for processor in (mask, *self._processors):
            if processor is not None:
                processor.apply(logits, batch)
        token_ids = logits.argmax(-1)
        no_possible_token = _find_impossible(logits, token_ids)
        if self._random is not None:
            token_ids[self._random.rows] = self._random.draw(logits, batch)
        if self._penalties is not None:
            self._penalties.observe(token_ids)
        return Sampled(token_ids.tolist(), self._logprobs.collect(logprobs, token_ids), num_nans, no_possible_token)

    def _compose(self, rows: Rows, logits: Tensor) -> None:
        has_drafts = len(set(rows.requests)) < len(rows)
        self._requests = [] if has_drafts else rows.requests
        self._logprobs = RequestedLogprobs(rows.requests)
        self._penalties = Penalties.make(rows, logits)
        self._random = RandomRows.make(rows.requests, logits)
        masks = [feature.make(rows, logits) for feature in (AllowedTokens, BadWords, MinTokens, LogitBias)]
        processors: list[LogitsProcessor | None] = [*masks, self._penalties]
        self._processors = [processor for processor in processors if processor is not None]


def _find_impossible(logits: Tensor, most_likely: Tensor) -> list[int]:
    """The rows whose most likely token is masked, and with it all others."""
    is_masked = logits.gather(1, most_likely[:, None])[:, 0] == -torch.inf
    rows: list[int] = is_masked.nonzero()[:, 0].tolist()
    return rows


def _count_nans(logits: Tensor) -> dict[int, int]:
    # The maximum of a row with a NaN is NaN; that costs a fraction of looking at every logit.
    suspects = logits.amax(-1).isnan().nonzero()[:, 0].tolist()
    return {row: int(logits[row].isnan().sum()) for row in suspects}
