"""min_p, then top_k, then top_p: which tokens stay possible.

Each row gets a threshold on its own logits, and tokens that tie with it all stay: nothing depends on the order in
which a sort leaves equals, nor on the other rows. Mostly the threshold is among the best hundred tokens. Only those are
looked at first, because a sort of the vocabulary costs as much as the model; rows that need more are looked at again.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from core.wire.sampling_params import SamplingParams

_SIZES = (128, 1024, 8192)


class Candidates(NamedTuple):
    """The best tokens of each row, best first: ``token_ids`` and ``logits`` [rows, candidates], -inf for the dropped.

    ``is_complete`` [rows]: whether all that stay possible are among them.
    """

    token_ids: Tensor
    logits: Tensor
    is_complete: Tensor


class Truncation:
    """The three limits of each row: float32 ``log_min_p`` and ``top_p``, int64 ``top_k``, all [rows]."""

    def __init__(self, log_min_p: Tensor, top_k: Tensor, top_p: Tensor) -> None:
        self._log_min_p, self._top_k, self._top_p = log_min_p, top_k, top_p
        self._is_top_p_alone = (top_k == 0) & log_min_p.isinf()
        self._needs_total = bool((self._is_top_p_alone & (top_p < 1)).any())

    @classmethod
    def of(cls, params: Sequence[SamplingParams], device: torch.device) -> "Truncation":
        return cls(
            torch.tensor([p.min_p for p in params], device=device).log(),
            torch.tensor([max(p.top_k, 0) for p in params], device=device),
            torch.tensor([p.top_p for p in params], device=device),
        )

    def of_rows(self, rows: Tensor) -> "Truncation":
        return Truncation(self._log_min_p[rows], self._top_k[rows], self._top_p[rows])

    def find_candidates(self, logits: Tensor, size: int) -> Candidates:
        """Among the best ``size`` tokens of each row of ``logits`` [rows, vocab_size]."""
        best, token_ids = logits.topk(size, -1)
        is_all = size == logits.shape[1]
        threshold = torch.maximum(best[:, 0] + self._log_min_p, self._kth_best(best))
        # The others must have been found as a whole before top_p can take its part of them.
        is_known = self._is_top_p_alone | (best[:, -1] < threshold)
        threshold = torch.maximum(threshold, self._nucleus_edge(logits, best, threshold))
        kept = torch.where(best < threshold[:, None], -torch.inf, best)
        return Candidates(token_ids, kept, is_known & (best[:, -1] < threshold) | is_all)

    def _kth_best(self, best: Tensor) -> Tensor:
        """-inf where top_k keeps all tokens, or more than ``best`` has."""
        size = best.shape[1]
        kth_best = best.gather(1, (self._top_k.clamp(1, size) - 1)[:, None])[:, 0]
        return kth_best.masked_fill((self._top_k == 0) | (self._top_k > size), -torch.inf)

    def _nucleus_edge(self, logits: Tensor, best: Tensor, threshold: Tensor) -> Tensor:
        """The last of the most probable tokens whose probabilities reach top_p; -inf where that is not in ``best``."""
        stay = torch.where(best < threshold[:, None], -torch.inf, best)
        total = stay.logsumexp(-1)
        if self._needs_total:
            total = torch.where(self._is_top_p_alone, logits.logsumexp(-1), total)
        sums = (stay - total[:, None]).exp().cumsum(-1)
        last_kept = (sums < self._top_p[:, None]).sum(-1)
        edge = best.gather(1, last_kept.clamp_max(best.shape[1] - 1)[:, None])[:, 0]
        return edge.masked_fill((last_kept >= best.shape[1]) | (self._top_p >= 1), -torch.inf)


def candidate_sizes(vocab_size: int) -> list[int]:
    """How many candidates to look at, until they are all."""
    return [*(size for size in _SIZES if size < vocab_size), vocab_size]


def is_truncated(params: SamplingParams) -> bool:
    return params.min_p > 0 or params.top_k > 0 or params.top_p < 1
