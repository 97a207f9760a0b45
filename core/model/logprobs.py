"""Log-probabilities of the model itself, before any sampling parameter changes the logits."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from core.model.request_state import RequestState
from core.wire.messages import LogprobsLists


class RankedLogprobs(NamedTuple):
    """Column 0 is the given token, columns 1..k the best k in falling order; ``ranks`` [rows], 1 = most likely."""

    token_ids: Tensor
    logprobs: Tensor
    ranks: Tensor


def rank_logprobs(logprobs: Tensor, token_ids: Tensor, k: int) -> RankedLogprobs:
    """For ``logprobs`` [rows, vocab_size] and ``token_ids`` [rows]; ``k`` -1 = the whole vocabulary."""
    own = logprobs.gather(1, token_ids[:, None])
    best = logprobs.topk(logprobs.shape[1] if k == -1 else k, -1)
    return RankedLogprobs(
        torch.cat((token_ids[:, None], best.indices), 1).to(torch.int32),
        torch.cat((own, best.values), 1),
        (logprobs > own).sum(-1) + 1,
    )


class RequestedLogprobs:
    """The rows of a batch that want log-probabilities, together with those that want equally many."""

    def __init__(self, requests: Sequence[RequestState]) -> None:
        self._rows_by_k: dict[int, list[int]] = {}
        for row, request in enumerate(requests):
            if (k := request.sampling_params.logprobs) is not None:
                self._rows_by_k.setdefault(k, []).append(row)

    def compute(self, logits: Tensor) -> dict[int, Tensor]:
        """By k, the log-probabilities [rows that want k, vocab_size]."""
        return {k: logits[rows].log_softmax(-1) for k, rows in self._rows_by_k.items()}

    def collect(self, computed: dict[int, Tensor], token_ids: Tensor) -> dict[int, LogprobsLists]:
        """By row, what goes out for the chosen ``token_ids`` [rows of the batch]."""
        lists = {}
        for k, rows in self._rows_by_k.items():
            ids, logprobs, ranks = (part.cpu().numpy() for part in rank_logprobs(computed[k], token_ids[rows], k))
            for i, row in enumerate(rows):
                one = slice(i, i + 1)
                lists[row] = LogprobsLists(ids[one], logprobs[one], ranks[one])
        return lists
