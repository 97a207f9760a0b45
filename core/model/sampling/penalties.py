"""Repetition, frequency and presence penalties."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.model.sampling.rows import Rows
from core.model.sampling.token_counts import UNSEEN, TokenCounts
from core.wire.sampling_params import SamplingParams


class _Columns(NamedTuple):
    """float32 [penalized rows, 1]."""

    repetition: Tensor
    frequency: Tensor
    presence: Tensor


class Penalties:
    """Tokens that occurred become less likely, or more with negative penalties.

    Repetition (Keskar et al. 2019, arXiv:1909.05858) looks at prompt and output: positive logits are divided by it,
    negative ones multiplied. Frequency and presence (OpenAI) look at the output alone and are subtracted: frequency
    times the token's count, presence once. Only the logits of tokens that occurred are looked at.
    """

    def __init__(self) -> None:
        self._occurred: TokenCounts | None = None

    def arrange(self, rows: Rows, logits: Tensor) -> bool:
        asking = rows.asking(_is_penalized)
        if not asking:
            self._occurred = None
            return False
        if self._occurred is None:
            self._occurred = TokenCounts(logits)
        requests = [rows.requests[row] for row in asking]
        # What stands before the first row of a request is accepted; between that one and a later one are drafts.
        first_rows = dict(zip(reversed(requests), reversed(asking), strict=True))
        self._requests, self._first_rows = list(first_rows), np.array(list(first_rows.values()))
        self._slots = self._occurred.arrange(self._requests)
        slots = dict(zip(self._requests, self._slots.tolist(), strict=True))
        self._asking, self._first_of = np.array(asking), np.array([first_rows[request] for request in requests])
        self._rows = torch.tensor(asking, device=logits.device)[:, None]
        self._lines = torch.tensor([slots[request] for request in requests], device=logits.device)
        self._columns = _columns([request.sampling_params for request in requests], logits)
        return True

    def apply(self, logits: Tensor, rows: Rows) -> None:
        assert self._occurred is not None, "someone asked"
        width = self._occurred.catch_up(self._requests, self._slots, rows.positions[self._first_rows])
        tokens = self._occurred.tokens[self._lines, :width]
        drafts = self._drafts(rows)
        if drafts is not None:
            drafts = drafts.to(logits.device)
            tokens = torch.cat((tokens, drafts.clamp_min(0)), 1)
        counts = self._occurred.counts[self._lines[:, None], tokens]
        if drafts is not None:
            counts = _count_drafts(counts, tokens, drafts)
        logits[self._rows, tokens] = _penalize(logits[self._rows, tokens], counts, self._columns)

    def _drafts(self, rows: Rows) -> Tensor | None:
        """int64 [penalized rows, most drafts]: those before each row, -1 in the places left over; None without any."""
        starts, stops = rows.positions[self._first_of], rows.positions[self._asking]
        lengths = stops - starts
        if not lengths.any():
            return None
        drafts = np.full((len(lengths), lengths.max()), -1, np.int64)
        for line, row, start, stop in zip(drafts, self._asking, starts, stops, strict=True):
            line[: stop - start] = rows.requests[row].token_ids.array[start:stop]
        return torch.from_numpy(drafts)


def _count_drafts(counts: Tensor, tokens: Tensor, drafts: Tensor) -> Tensor:
    occurrences = (tokens[:, :, None] == drafts[:, None, :]).sum(-1)
    return torch.where(occurrences > 0, counts.clamp_min(0) + occurrences, counts)


def _penalize(logits: Tensor, counts: Tensor, columns: _Columns) -> Tensor:
    repeated = torch.where(logits > 0, logits / columns.repetition, logits * columns.repetition)
    penalized = torch.where(counts > UNSEEN, repeated, logits)
    return penalized - (columns.frequency * counts.clamp_min(0) + columns.presence * (counts > 0))


def _is_penalized(params: SamplingParams) -> bool:
    return params.repetition_penalty != 1.0 or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0


def _columns(params: Sequence[SamplingParams], like: Tensor) -> _Columns:
    values = [(p.repetition_penalty, p.frequency_penalty, p.presence_penalty) for p in params]
    return _Columns(*torch.tensor(values, dtype=torch.float32, device=like.device)[:, :, None].unbind(1))
