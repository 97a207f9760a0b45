"""What requests ask to change in the logits before a token is chosen, each feature for the rows that ask for it.

A processor is made when the composition of the batch changes and None if no request needs it; ``apply`` changes
logits float32 [rows, vocab_size] in place. Processors read the requests' tokens themselves at every step.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from core.model.request_state import RequestState


class LogitsProcessor(Protocol):
    def apply(self, logits: Tensor) -> None: ...


class AllowedTokens:
    """Only ``allowed_token_ids`` keep their logits."""

    def __init__(self, rows: Tensor, is_banned: Tensor) -> None:
        self._rows, self._is_banned = rows, is_banned

    @classmethod
    def make(cls, requests: Sequence[RequestState], logits: Tensor) -> "AllowedTokens | None":
        rows = [row for row, request in enumerate(requests) if request.sampling_params.allowed_token_ids]
        if not rows:
            return None
        is_banned = logits.new_ones((len(rows), logits.shape[1]), dtype=torch.bool)
        for banned, row in zip(is_banned, rows, strict=True):
            banned[requests[row].sampling_params.allowed_token_ids] = False
        return cls(torch.tensor(rows, device=logits.device), is_banned)

    def apply(self, logits: Tensor) -> None:
        logits[self._rows] = logits[self._rows].masked_fill_(self._is_banned, -torch.inf)


class BadWords:
    """The last token of a bad word is masked whenever the output ends with the tokens before it."""

    def __init__(self, requests: dict[int, RequestState]) -> None:
        self._requests = requests

    @classmethod
    def make(cls, requests: Sequence[RequestState], _: Tensor) -> "BadWords | None":
        asking = {row: request for row, request in enumerate(requests) if request.sampling_params.bad_words_token_ids}
        return cls(asking) if asking else None

    def apply(self, logits: Tensor) -> None:
        for row, request in self._requests.items():
            output = request.output_token_ids
            for *start, last in request.sampling_params.bad_words_token_ids or ():
                if len(start) <= len(output) and (not start or output[-len(start) :].tolist() == start):
                    logits[row, last] = -torch.inf


class MinTokens:
    """Every token that would end the request is masked until it has ``min_tokens`` tokens."""

    def __init__(self, requests: Sequence[RequestState], stops: list[tuple[int, int]], device: torch.device) -> None:
        self._requests = requests
        self._min_tokens = np.array([request.sampling_params.min_tokens for request in requests])
        self._rows, self._token_ids = torch.tensor(stops, device=device).unbind(1)

    @classmethod
    def make(cls, requests: Sequence[RequestState], logits: Tensor) -> "MinTokens | None":
        stops = [
            (row, token_id)
            for row, request in enumerate(requests)
            if request.num_output_tokens < request.sampling_params.min_tokens
            for token_id in _stop_token_ids(request)
        ]
        return cls(requests, stops, logits.device) if stops else None

    def apply(self, logits: Tensor) -> None:
        num_output_tokens = np.array([request.num_output_tokens for request in self._requests])
        is_short = torch.from_numpy(num_output_tokens < self._min_tokens).to(logits.device)[self._rows]
        logits[self._rows[is_short], self._token_ids[is_short]] = -torch.inf


def _stop_token_ids(request: RequestState) -> set[int]:
    params = request.sampling_params
    eos = [] if params.eos_token_id is None else [params.eos_token_id]
    return {*eos, *params.all_stop_token_ids, *(params.stop_token_ids or ())}


class LogitBias:
    """``logit_bias`` is added."""

    def __init__(self, biases: list[tuple[int, int, float]], device: torch.device) -> None:
        rows, token_ids, values = zip(*biases, strict=True)
        self._rows, self._token_ids = torch.tensor([rows, token_ids], device=device)
        self._values = torch.tensor(values, dtype=torch.float32, device=device)

    @classmethod
    def make(cls, requests: Sequence[RequestState], logits: Tensor) -> "LogitBias | None":
        biases = [
            (row, token_id, value)
            for row, request in enumerate(requests)
            for token_id, value in (request.sampling_params.logit_bias or {}).items()
        ]
        return cls(biases, logits.device) if biases else None

    def apply(self, logits: Tensor) -> None:
        logits[self._rows, self._token_ids] += self._values
