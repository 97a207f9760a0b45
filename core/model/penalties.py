"""Repetition, frequency and presence penalties."""

from collections.abc import Sequence

import torch
from torch import Tensor

from core.model.request_state import RequestState


class Penalties:
    """Tokens that occurred become less likely, or more with negative penalties.

    Repetition (Keskar et al. 2019, arXiv:1909.05858) looks at prompt and output: positive logits are divided by it,
    negative ones multiplied. Frequency and presence (OpenAI) look at the output alone and are subtracted: frequency
    times the token's count, presence once.
    """

    def __init__(self, requests: dict[int, RequestState], logits: Tensor) -> None:
        params = [request.sampling_params for request in requests.values()]
        self._rows = torch.tensor(list(requests), device=logits.device)
        self._repetition = _column([p.repetition_penalty for p in params], logits)
        self._frequency = _column([p.frequency_penalty for p in params], logits)
        self._presence = _column([p.presence_penalty for p in params], logits)
        self._counts = logits.new_zeros((len(params), logits.shape[1]), dtype=torch.float32)
        self._seen = logits.new_zeros(self._counts.shape, dtype=torch.bool)
        for counts, seen, request in zip(self._counts, self._seen, requests.values(), strict=True):
            output = torch.from_numpy(request.output_token_ids).to(logits.device)
            counts += torch.bincount(output, minlength=logits.shape[1])
            seen[request.seen_token_ids] = True

    @classmethod
    def make(cls, requests: Sequence[RequestState], logits: Tensor) -> "Penalties | None":
        asking = {row: request for row, request in enumerate(requests) if _is_penalized(request)}
        return cls(asking, logits) if asking else None

    def apply(self, logits: Tensor) -> None:
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
