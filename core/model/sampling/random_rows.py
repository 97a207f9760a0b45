"""The rows of a batch that are not greedy."""

import numpy as np
import torch
from torch import Tensor

from core.model.sampling.gumbel import draw_keys, gumbel_noise
from core.model.sampling.most_likely import most_likely
from core.model.sampling.rows import Rows
from core.model.sampling.truncation import Truncation, candidate_sizes, is_truncated

_MIN_TEMPERATURE = 0.01
"""As in vLLM: lower ones leave nothing of a logit's precision."""
_SEED_MASK = (1 << 64) - 1


class RandomRows:
    """Temperature, truncation and a draw keyed by each request's seed and the position of the new token."""

    def __init__(self, indices: list[int], rows: Rows, device: torch.device) -> None:
        requests = [rows.requests[row] for row in indices]
        params = [request.sampling_params for request in requests]
        self._indices = indices
        self._seeds = np.array([request.seed & _SEED_MASK for request in requests], np.uint64)
        self.rows = torch.tensor(indices, device=device)
        self.is_whole_batch = len(indices) == len(rows)
        self._temperature = torch.tensor([[max(p.temperature, _MIN_TEMPERATURE)] for p in params], device=device)
        self._free = _places([not is_truncated(p) for p in params], device)
        self._truncated = _places([is_truncated(p) for p in params], device)
        self._truncation = Truncation.of(params, device)

    @classmethod
    def make(cls, rows: Rows, logits: Tensor) -> "RandomRows | None":
        """None if every row is greedy."""
        indices = rows.asking(lambda params: not params.is_greedy)
        return cls(indices, rows, logits.device) if indices else None

    def draw(self, logits: Tensor, rows: Rows) -> Tensor:
        """One token id for each of ``self.rows``, of ``logits`` [rows of the batch, vocab_size], which may change.

        What is masked or NaN stays so.
        """
        own = (logits if self.is_whole_batch else logits.index_select(0, self.rows)).div_(self._temperature)
        positions = rows.positions[self._indices].astype(np.uint64)
        keys = torch.from_numpy(draw_keys(self._seeds, positions)).to(logits.device)
        if not len(self._truncated):
            return _draw_from_all(own, keys)
        token_ids = torch.empty_like(self.rows)
        if len(self._free):
            token_ids[self._free] = _draw_from_all(own.index_select(0, self._free), keys[self._free])
        self._draw_truncated(own, keys, token_ids)
        return token_ids

    def _draw_truncated(self, logits: Tensor, keys: Tensor, token_ids: Tensor) -> None:
        pending = self._truncated
        for size in candidate_sizes(logits.shape[1]):
            is_all = len(pending) == len(logits)
            truncation = self._truncation if is_all else self._truncation.of_rows(pending)
            found = truncation.find_candidates(logits if is_all else logits.index_select(0, pending), size)
            noise = gumbel_noise(keys[pending], found.token_ids.int())
            token_ids[pending] = found.token_ids.gather(1, (found.logits + noise).argmax(-1, keepdim=True))[:, 0]
            pending = pending[~found.is_complete]
            if not len(pending):
                return


def _draw_from_all(logits: Tensor, keys: Tensor) -> Tensor:
    token_ids = torch.arange(logits.shape[1], dtype=torch.int32, device=logits.device)
    # On a CPU row by row: one stays in the cache while its noise is made.
    num_rows = 1 if logits.device.type == "cpu" else len(logits)
    parts = zip(torch.split(logits, num_rows), torch.split(keys, num_rows), strict=True)
    return torch.cat([most_likely(gumbel_noise(own_keys, token_ids).add_(part)) for part, own_keys in parts])


def _places(is_so: list[bool], device: torch.device) -> Tensor:
    return torch.tensor([place for place, so in enumerate(is_so) if so], dtype=torch.int64, device=device)
