"""The rows of a batch that are not greedy."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from core.model.gumbel import draw_keys, gumbel_noise
from core.model.request_state import RequestState
from core.model.rows import Rows
from core.model.truncation import mask_min_p, mask_top_k, mask_top_p

_SEED_MASK = (1 << 64) - 1


class RandomRows:
    """Temperature, truncation and a draw keyed by each request's seed and the position of the new token."""

    def __init__(self, requests: dict[int, RequestState], device: torch.device) -> None:
        params = [request.sampling_params for request in requests.values()]
        self._seeds = np.array([request.seed & _SEED_MASK for request in requests.values()], np.uint64)
        self._indices = list(requests)
        self.rows = torch.tensor(self._indices, device=device)
        self._temperature = torch.tensor([[p.temperature] for p in params], device=device)
        self._min_p = _tensor_if_any([p.min_p for p in params], 0.0, device)
        self._top_k = _tensor_if_any([max(p.top_k, 0) for p in params], 0, device)
        self._top_p = _tensor_if_any([p.top_p for p in params], 1.0, device)

    @classmethod
    def make(cls, requests: Sequence[RequestState], logits: Tensor) -> "RandomRows | None":
        random = {row: request for row, request in enumerate(requests) if not request.sampling_params.is_greedy}
        return cls(random, logits.device) if random else None

    def draw(self, logits: Tensor, rows: Rows) -> Tensor:
        """One token id for each of ``rows``, of ``logits`` [rows of the batch, vocab_size]."""
        logits = logits[self.rows].div_(self._temperature)
        if self._min_p is not None:
            logits = mask_min_p(logits, self._min_p)
        if self._top_k is not None:
            logits = mask_top_k(logits, self._top_k.clamp_max(logits.shape[1]))
        if self._top_p is not None:
            logits = mask_top_p(logits, self._top_p)
        positions = rows.positions[self._indices].astype(np.uint64)
        keys = torch.from_numpy(draw_keys(self._seeds, positions)).to(logits.device)
        return gumbel_noise(keys, logits.shape[1]).add_(logits).argmax(-1)


def _tensor_if_any(values: Sequence[float], off: float, device: torch.device) -> Tensor | None:
    """None when every request leaves the feature off."""
    return torch.tensor(values, device=device) if any(value != off for value in values) else None
