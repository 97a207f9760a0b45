"""Log-probabilities of a request's own prompt, gathered chunk by chunk."""

import numpy as np
import torch
from torch import Tensor

from core.model.logprobs import RankedLogprobs, rank_logprobs
from core.model.model import Model
from core.model.step_batch import Span
from core.wire.messages import LogprobsTensors
from core.wire.tensor import Tensor as WireTensor

_ROWS_TOGETHER = 64
"""Logits of a whole prompt would take gigabytes."""


class PromptLogprobs:
    """Row i scores prompt token i+1, given those before it; the best ``k`` beside it."""

    def __init__(self, k: int) -> None:
        self._k = k
        width = k + 1
        ranks = torch.empty(0, dtype=torch.int64)
        self._parts = [RankedLogprobs(torch.empty(0, width, dtype=torch.int32), torch.empty(0, width), ranks)]

    def score(self, model: Model, span: Span, hidden: Tensor) -> None:
        """Score the tokens that follow those of ``span``, whose last hidden states are ``hidden``."""
        prompt = span.request.token_ids.array[: span.request.num_prompt_tokens]
        targets = torch.from_numpy(prompt[span.start + 1 : span.stop + 1])
        for first in range(0, len(targets), _ROWS_TOGETHER):
            rows = slice(first, min(first + _ROWS_TOGETHER, len(targets)))
            logprobs = model.logits(hidden[rows]).float().log_softmax(-1).cpu()
            self._parts.append(rank_logprobs(logprobs, targets[rows], self._k))

    def result(self) -> LogprobsTensors:
        token_ids, logprobs, ranks = (torch.cat(parts).numpy() for parts in zip(*self._parts, strict=True))
        return LogprobsTensors(WireTensor(token_ids), WireTensor(logprobs), WireTensor(ranks.astype(np.int32)))
