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
from core.model.rows import Rows


class LogitsProcessor(Protocol):
    def apply(self, logits: Tensor, rows: Rows) -> None: ...


class TokenMask:
    """What a grammar leaves to the rows ``indices`` of a batch: in ``bits`` [len(indices), words], int32, bit j of
    word i is token 32 i + j, and 1 keeps it. Rows that no grammar concerns are not among them.
    """

    def __init__(self, indices: Sequence[int], bits: Tensor) -> None:
        self._indices, self._bits = torch.tensor(indices), bits

    def apply(self, logits: Tensor, _: Rows) -> None:
        rows, bits = self._indices.to(logits.device), self._bits.to(logits.device)
        places = torch.arange(32, dtype=torch.int32, device=logits.device)
        is_banned = (((bits[:, :, None] >> places) & 1) == 0).flatten(1)[:, : logits.shape[1]]
        logits[rows] = logits[rows].masked_fill_(is_banned, -torch.inf)


class AllowedTokens:
    """Only ``allowed_token_ids`` keep their logits."""

    def __init__(self, rows: Tensor, is_banned: Tensor) -> None:
        self._rows, self._is_banned = rows, is_banned

    @classmethod
    def make(cls, rows: Rows, logits: Tensor) -> "AllowedTokens | None":
        asking = [row for row, request in enumerate(rows.requests) if request.sampling_params.allowed_token_ids]
        if not asking:
            return None
        is_banned = logits.new_ones((len(asking), logits.shape[1]), dtype=torch.bool)
        for banned, row in zip(is_banned, asking, strict=True):
            banned[rows.requests[row].sampling_params.allowed_token_ids] = False
        return cls(torch.tensor(asking, device=logits.device), is_banned)

    def apply(self, logits: Tensor, _: Rows) -> None:
        logits[self._rows] = logits[self._rows].masked_fill_(self._is_banned, -torch.inf)


class BadWords:
    """The last token of a bad word is masked whenever the output ends with the tokens before it."""

    def __init__(self, requests: dict[int, RequestState]) -> None:
        self._requests = requests

    @classmethod
    def make(cls, rows: Rows, _: Tensor) -> "BadWords | None":
        asking = {row: r for row, r in enumerate(rows.requests) if r.sampling_params.bad_words_token_ids}
        return cls(asking) if asking else None

    def apply(self, logits: Tensor, rows: Rows) -> None:
        for row, request in self._requests.items():
            output = rows.output_token_ids(row)
            for *start, last in request.sampling_params.bad_words_token_ids or ():
                if len(start) <= len(output) and (not start or output[-len(start) :].tolist() == start):
                    logits[row, last] = -torch.inf


class MinTokens:
    """Every token that would end the request is masked until it has ``min_tokens`` tokens."""

    def __init__(self, requests: Sequence[RequestState], stops: list[tuple[int, int]], device: torch.device) -> None:
        self._min_tokens = np.array([request.sampling_params.min_tokens for request in requests])
        self._rows, self._token_ids = torch.tensor(stops, device=device).unbind(1)

    @classmethod
    def make(cls, rows: Rows, logits: Tensor) -> "MinTokens | None":
        stops = [
            (row, token_id)
            for row, request in enumerate(rows.requests)
            if rows.num_output_tokens[row] < request.sampling_params.min_tokens
            for token_id in _stop_token_ids(request)
        ]
        return cls(rows.requests, stops, logits.device) if stops else None

    def apply(self, logits: Tensor, rows: Rows) -> None:
        is_short = torch.from_numpy(rows.num_output_tokens < self._min_tokens).to(logits.device)[self._rows]
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
    def make(cls, rows: Rows, logits: Tensor) -> "LogitBias | None":
        biases = [
            (row, token_id, value)
            for row, request in enumerate(rows.requests)
            for token_id, value in (request.sampling_params.logit_bias or {}).items()
        ]
        return cls(biases, logits.device) if biases else None

    def apply(self, logits: Tensor, _: Rows) -> None:
        logits[self._rows, self._token_ids] += self._values
