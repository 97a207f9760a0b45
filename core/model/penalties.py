"""Repetition, frequency and presence penalties."""

import torch
from torch import Tensor

from core.model.request_state import RequestState
from core.model.rows import Rows


class Penalties:
    """Tokens that occurred become less likely, or more with negative penalties.

    Repetition (Keskar et al. 2019, arXiv:1909.05858) looks at prompt and output: positive logits are divided by it,
    negative ones multiplied. Frequency and presence (OpenAI) look at the output alone and are subtracted: frequency
    times the token's count, presence once.
    """

    def __init__(self, asking: list[int], rows: Rows, logits: Tensor) -> None:
        params = [rows.requests[row].sampling_params for row in asking]
        self._rows = torch.tensor(asking, device=logits.device)
        self._repetition = _column([p.repetition_penalty for p in params], logits)
        self._frequency = _column([p.frequency_penalty for p in params], logits)
        self._presence = _column([p.presence_penalty for p in params], logits)
        self._counts = logits.new_zeros((len(params), logits.shape[1]), dtype=torch.float32)
        self._seen = logits.new_zeros(self._counts.shape, dtype=torch.bool)
        for counts, seen, row in zip(self._counts, self._seen, asking, strict=True):
            output = rows.output_token_ids(row)
            counts += torch.bincount(torch.from_numpy(output).to(logits.device), minlength=logits.shape[1])
            seen[rows.requests[row].seen_prompt_token_ids] = True
            seen[output] = True

    @classmethod
    def make(cls, rows: Rows, logits: Tensor) -> "Penalties | None":
        asking = [row for row, request in enumerate(rows.requests) if _is_penalized(request)]
        return cls(asking, rows, logits) if asking else None

    def apply(self, logits: Tensor, _: Rows) -> None:
        penalized = logits[self._rows]
        repeated = torch.where(penalized > 0, penalized / self._repetition, penalized * self._repetition)
        penalized = torch.where(self._seen, repeated, penalized)
        penalized -= self._frequency * self._counts + self._presence * (self._counts > 0)
        logits[self._rows] = penalized

    def observe(self, token_ids: Tensor) -> None:
        """Count the tokens int64 [rows of the batch] that this step chose."""
        chosen = token_ids[self._rows][:, None]
        self._counts.scatter_add_(1, chosen, torch.ones_like(chosen, dtype=torch.float32))
        self._seen.scatter_(1, chosen, True)


def _is_penalized(request: RequestState) -> bool:
    params = request.sampling_params
    return params.repetition_penalty != 1.0 or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0


def _column(values: list[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=like.device)[:, None]
