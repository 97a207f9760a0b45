"""Chooses one token for each row of logits, in vLLM's order.

log-probabilities of the raw logits
→ allowed_token_ids → bad_words → min_tokens → logit_bias → penalties
→ greedy rows: the most likely token; others: temperature → min_p → top_k → top_p → draw
"""

from typing import NamedTuple

import torch
from torch import Tensor

from core.model.logits_processors import AllowedTokens, BadWords, LogitBias, LogitsProcessor, MinTokens
from core.model.logprobs import RequestedLogprobs
from core.model.penalties import Penalties
from core.model.random_rows import RandomRows
from core.model.request_state import RequestState
from core.wire.messages import LogprobsLists


class Sampled(NamedTuple):
    """``token_ids`` one per row; the others have entries only for requests with something to report."""

    token_ids: list[int]
    logprobs: dict[str, LogprobsLists]
    num_nans: dict[str, int]
    no_possible_token: set[str]


class Sampler:
    """Keeps what the composition of the batch decides until the composition changes."""

    def __init__(self) -> None:
        self._requests: list[RequestState] = []

    def sample(self, logits: Tensor, requests: list[RequestState]) -> Sampled:
        """Row i of ``logits`` [rows, vocab_size] belongs to ``requests[i]``. The logits are changed."""
        logits = logits.float()
        if requests != self._requests:
            self._compose(requests, logits)
        num_nans = _count_nans(logits, requests)
        logprobs = self._logprobs.compute(logits)
        for processor in self._processors:
            processor.apply(logits)
        token_ids = logits.argmax(-1)
        no_possible_token = _find_impossible(logits, token_ids, requests)
        if self._random is not None:
            token_ids[self._random.rows] = self._random.draw(logits)
        if self._penalties is not None:
            self._penalties.observe(token_ids)
        return Sampled(token_ids.tolist(), self._logprobs.collect(logprobs, token_ids), num_nans, no_possible_token)

    def _compose(self, requests: list[RequestState], logits: Tensor) -> None:
        self._requests = requests
        self._logprobs = RequestedLogprobs(requests)
        self._penalties = Penalties.make(requests, logits)
        self._random = RandomRows.make(requests, logits)
        masks = [feature.make(requests, logits) for feature in (AllowedTokens, BadWords, MinTokens, LogitBias)]
        processors: list[LogitsProcessor | None] = [*masks, self._penalties]
        self._processors = [processor for processor in processors if processor is not None]


def _find_impossible(logits: Tensor, most_likely: Tensor, requests: list[RequestState]) -> set[str]:
    """The requests whose most likely token is masked, and with it all others."""
    is_masked = logits.gather(1, most_likely[:, None])[:, 0] == -torch.inf
    return {requests[row].request_id for row in is_masked.nonzero()[:, 0].tolist()}


def _count_nans(logits: Tensor, requests: list[RequestState]) -> dict[str, int]:
    # The maximum of a row with a NaN is NaN; that costs a fraction of looking at every logit.
    suspects = logits.amax(-1).isnan().nonzero()[:, 0].tolist()
    return {requests[row].request_id: int(logits[row].isnan().sum()) for row in suspects}
