"""Log-probabilities of a request's own prompt, gathered chunk by chunk."""

import numpy as np
import torch
from torch import Tensor

from core.model.model import Model
from core.model.sampling.logprobs import rank_logprobs
from core.model.span import Span
from core.wire.messages import LogprobsTensors
from core.wire.sampling_params import num_logprob_entries
from core.wire.tensor import Tensor as WireTensor

_ROWS_TOGETHER = 64
"""Logits of a whole prompt would take gigabytes."""


class PromptLogprobs:
    """Row i scores prompt token i+1, given those before it; the best ``k`` beside it, -1 = the whole vocabulary."""

    def __init__(self, k: int, num_prompt_tokens: int, vocab_size: int) -> None:
        self._k = k
        shape = (num_prompt_tokens - 1, num_logprob_entries(k, vocab_size))
        self._token_ids, self._logprobs = np.empty(shape, np.int32), np.empty(shape, np.float32)
        self._ranks = np.empty(shape[0], np.int32)

    def score(self, model: Model, span: Span, hidden: Tensor) -> None:
        """Score the tokens that follow those of ``span``, whose last hidden states are ``hidden``."""
        prompt = span.request.prompt_token_ids
        for start in range(span.start, min(span.stop, len(prompt) - 1), _ROWS_TOGETHER):
            stop = min(start + _ROWS_TOGETHER, span.stop, len(prompt) - 1)
            logprobs = model.logits(hidden[start - span.start : stop - span.start]).float().log_softmax(-1)
            targets = torch.from_numpy(prompt[start + 1 : stop + 1]).to(logprobs.device)
            ranked = rank_logprobs(logprobs, targets, self._k)
            parts = (self._token_ids, self._logprobs, self._ranks)
            for whole, part in zip(parts, ranked, strict=True):
                whole[start:stop] = part.cpu().numpy()

    def result(self) -> LogprobsTensors:
        return LogprobsTensors(WireTensor(self._token_ids), WireTensor(self._logprobs), WireTensor(self._ranks))
