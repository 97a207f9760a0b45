"""Log-probabilities of the model itself, before any sampling parameter changes the logits."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.model.sampling.rows import Rows
from core.wire.messages import LogprobsLists
from core.wire.sampling_params import ALL_LOGPROBS, SamplingParams


class RankedLogprobs(NamedTuple):
    """Column 0 is the given token, the others are the best in falling order, or those that were asked for.

    ``ranks`` [rows] of the given token, 1 = most likely.
    """

    token_ids: Tensor
    logprobs: Tensor
    ranks: Tensor


def rank_logprobs(logprobs: Tensor, token_ids: Tensor, k: int) -> RankedLogprobs:
    """For ``logprobs`` [rows, vocab_size] and ``token_ids`` [rows]; ``k`` -1 = the whole vocabulary."""
    if k == ALL_LOGPROBS:
        order = _falling_order(logprobs)
        return _beside(logprobs, token_ids, order, logprobs.gather(1, order))
    best = logprobs.topk(min(k, logprobs.shape[1]), -1)
    return _beside(logprobs, token_ids, best.indices, best.values)


def gather_logprobs(logprobs: Tensor, token_ids: Tensor, asked: Tensor) -> RankedLogprobs:
    """For the tokens ``asked`` int64 [rows, columns], whatever their rank."""
    return _beside(logprobs, token_ids, asked, logprobs.gather(1, asked))


def _falling_order(logprobs: Tensor) -> Tensor:
    """Of each row. On a CPU numpy's sort takes a seventh of torch's."""
    if logprobs.device.type != "cpu":
        return logprobs.argsort(-1, descending=True)
    return torch.from_numpy(np.argsort(-logprobs.numpy(), -1))


def _beside(logprobs: Tensor, token_ids: Tensor, columns: Tensor, values: Tensor) -> RankedLogprobs:
    own = logprobs.gather(1, token_ids[:, None])
    return RankedLogprobs(
        torch.cat((token_ids[:, None], columns), 1).to(torch.int32),
        torch.cat((own, values), 1),
        # Sums of bools go through int64 by default, which takes six times as long.
        (logprobs > own).sum(-1, dtype=torch.int32).long() + 1,
    )


class _Group(NamedTuple):
    """Rows that get equally many columns: the best ``k``, or the tokens ``asked`` int64 [rows, columns]."""

    rows: list[int]
    k: int
    asked: Tensor | None

    def rank(self, logprobs: Tensor, token_ids: Tensor) -> RankedLogprobs:
        if self.asked is None:
            return rank_logprobs(logprobs, token_ids, self.k)
        return gather_logprobs(logprobs, token_ids, self.asked.to(logprobs.device))


class RequestedLogprobs:
    """The rows of a batch that want log-probabilities, those together that want equally many."""

    def __init__(self, groups: list[_Group]) -> None:
        self._groups = groups

    @classmethod
    def make(cls, rows: Rows) -> "RequestedLogprobs | None":
        """None if no row wants any. ``logprob_token_ids`` goes before ``logprobs``."""
        by_k: dict[int, list[int]] = {}
        by_number: dict[int, list[int]] = {}
        for row in rows.asking(_wants_logprobs):
            params = rows.requests[row].sampling_params
            if params.logprob_token_ids is not None:
                by_number.setdefault(len(params.logprob_token_ids), []).append(row)
            elif params.logprobs is not None:
                by_k.setdefault(params.logprobs, []).append(row)
        groups = [_Group(of_k, k, None) for k, of_k in by_k.items()]
        for number, same in by_number.items():
            asked = [rows.requests[row].sampling_params.logprob_token_ids for row in same]
            groups.append(_Group(same, number, torch.tensor(asked, dtype=torch.int64)))
        return cls(groups) if groups else None

    def compute(self, logits: Tensor) -> list[Tensor]:
        """The log-probabilities float32 [rows, vocab_size] of each group."""
        return [
            (logits if len(group.rows) == len(logits) else logits[group.rows]).log_softmax(-1) for group in self._groups
        ]

    def collect(self, computed: list[Tensor], token_ids: Tensor) -> dict[int, LogprobsLists]:
        """By row, what goes out for the chosen ``token_ids`` [rows of the batch]."""
        lists = {}
        for group, logprobs in zip(self._groups, computed, strict=True):
            ranked = group.rank(logprobs, token_ids[group.rows])
            ids, values, ranks = (part.cpu().numpy() for part in ranked)
            for i, row in enumerate(group.rows):
                one = slice(i, i + 1)
                lists[row] = LogprobsLists(ids[one], values[one], ranks[one])
        return lists


def _wants_logprobs(params: SamplingParams) -> bool:
    return params.logprobs is not None or params.logprob_token_ids is not None
