"""Chooses one token for each row of logits, in vLLM's order.

log-probabilities of the raw logits
→ the grammar's mask → allowed_token_ids → bad_words → min_tokens → logit_bias → penalties
→ greedy rows: the most likely token; others: temperature → min_p → top_k → top_p → draw
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from core.model.request_state import RequestState
from core.model.sampling.logits_processors import (
    AllowedTokens,
    BadWords,
    LogitBias,
    LogitsProcessor,
    MinTokens,
    TokenMask,
)
from core.model.sampling.logprobs import RequestedLogprobs
from core.model.sampling.most_likely import most_likely
from core.model.sampling.penalties import Penalties
from core.model.sampling.random_rows import RandomRows
from core.model.sampling.rows import Row, Rows
from core.wire.messages import LogprobsLists


class Sampled(NamedTuple):
    """``token_ids`` one per row; the others only for rows with something to report, by row."""

    token_ids: list[int]
    logprobs: dict[int, LogprobsLists]
    num_nans: dict[int, int]
    no_possible_token: list[int]


class Sampler:
    """Keeps what its requests need from step to step. A batch of plain greedy requests costs its argmax alone."""

    def __init__(self) -> None:
        self._requests: list[RequestState] = []
        self._features: list[LogitsProcessor] = [AllowedTokens(), BadWords(), MinTokens(), LogitBias(), Penalties()]
        self._processors: list[LogitsProcessor] = []
        self._logprobs: RequestedLogprobs | None = None
        self._random: RandomRows | None = None

    def sample(self, logits: Tensor, rows: Sequence[Row], mask: TokenMask | None = None) -> Sampled:
        """Row i of ``logits`` [rows, vocab_size] belongs to ``rows[i]``. The logits are changed.

        A token is that of its row alone: whatever the others are, and whether the tokens before it were chosen in
        earlier calls or are drafts in ``request.token_ids``. ``mask``: what a grammar leaves to some of the rows.
        """
        logits, batch = logits.float(), Rows(rows)
        if batch.requests != self._requests:
            self._arrange(batch, logits)
        # A mask may hide a NaN. Without one, whoever is chosen shows it: NaN counts as the most likely.
        num_nans = _count_nans(logits, logits.amax(-1).tolist()) if self._processors or mask is not None else {}
        logprobs = self._logprobs.compute(logits) if self._logprobs is not None else []
        if mask is not None:
            mask.apply(logits)
        for processor in self._processors:
            processor.apply(logits, batch)
        token_ids = self._choose(logits, batch)
        chosen: list[float] = logits.gather(1, token_ids[:, None])[:, 0].tolist()
        return Sampled(
            token_ids.tolist(),
            self._logprobs.collect(logprobs, token_ids) if self._logprobs is not None else {},
            num_nans or _count_nans(logits, chosen),
            [row for row, logit in enumerate(chosen) if logit == -math.inf],
        )

    def _arrange(self, rows: Rows, logits: Tensor) -> None:
        self._requests = rows.requests
        self._processors = [feature for feature in self._features if feature.arrange(rows, logits)]
        self._logprobs = RequestedLogprobs.make(rows)
        self._random = RandomRows.make(rows, logits)

    def _choose(self, logits: Tensor, rows: Rows) -> Tensor:
        if self._random is None:
            return most_likely(logits)
        drawn = self._random.draw(logits, rows)
        if self._random.is_whole_batch:
            return drawn
        return most_likely(logits).index_copy_(0, self._random.rows, drawn)


def _count_nans(logits: Tensor, witnesses: Sequence[float]) -> dict[int, int]:
    """By row, how many logits are NaN; ``witnesses``, one for each row, are NaN where there is any."""
    return {row: int(logits[row].isnan().sum()) for row, witness in enumerate(witnesses) if math.isnan(witness)}
