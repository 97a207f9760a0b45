"""Which tokens occurred in the requests of a batch, and how often."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.model.request_state import RequestState
from core.model.sampling.slots import Slots, grow_lines

UNSEEN = -1.0
"""The count of a token that is neither in the output nor in the prompt. One that is in the prompt alone has 0."""


class TokenCounts:
    """A request has a line in two tables, by its slot.

    ``counts`` float32 [slots, vocab_size]: by token, how often it is in the output, or UNSEEN. ``tokens`` int64 [slots,
    width]: the tokens that occurred, some of them twice; token 0 fills the places that are left.
    """

    def __init__(self, logits: Tensor) -> None:
        """For logits like ``logits`` [rows, vocab_size]."""
        self.counts = logits.new_empty((0, logits.shape[1]), dtype=torch.float32)
        self.tokens = logits.new_zeros((0, 1), dtype=torch.int64)
        self._slots = Slots()
        self._num_tokens = np.zeros(0, np.int64)
        self._num_counted = np.zeros(0, np.int64)

    def arrange(self, requests: Sequence[RequestState]) -> NDArray[np.int64]:
        """Count for these requests, and no others; the slot of each."""
        newcomers = self._slots.arrange(requests)
        num_lines = len(self._slots)
        self.counts, self.tokens = (grow_lines(table, num_lines) for table in (self.counts, self.tokens))
        self._num_tokens, self._num_counted = (
            np.pad(numbers, (0, max(num_lines - len(numbers), 0))) for numbers in (self._num_tokens, self._num_counted)
        )
        for request in newcomers:
            self._begin(request)
        return np.array([self._slots[request] for request in requests], np.int64)

    def catch_up(self, requests: Sequence[RequestState], slots: NDArray[np.int64], lengths: NDArray[np.int64]) -> int:
        """Count the first ``lengths`` tokens of each request, where they are not yet; the width that is in use."""
        ends = zip(requests, self._num_counted[slots].tolist(), lengths.tolist(), strict=True)
        new = [request.token_ids.array[counted:length] for request, counted, length in ends]
        self._add(slots, new)
        self._num_counted[slots] = lengths
        return int(self._num_tokens[slots].max())

    def _begin(self, request: RequestState) -> None:
        slot, seen = self._slots[request], np.unique(request.seen_prompt_token_ids)
        self._widen(len(seen))
        token_ids = torch.from_numpy(seen).to(self.tokens.device)
        self.tokens[slot] = 0
        self.tokens[slot, : len(seen)] = token_ids
        self.counts[slot] = UNSEEN
        self.counts[slot, token_ids] = 0.0
        self._num_tokens[slot], self._num_counted[slot] = len(seen), request.num_prompt_tokens

    def _add(self, slots: NDArray[np.int64], new: list[NDArray[np.int64]]) -> None:
        lengths = np.array([len(tokens) for tokens in new], np.int64)
        if not lengths.any():
            return
        firsts = self._num_tokens[slots] - (lengths.cumsum() - lengths)
        places = np.repeat(firsts, lengths) + np.arange(lengths.sum())
        self._widen(int(places.max()) + 1)
        self._num_tokens[slots] += lengths
        parts = (np.repeat(slots, lengths), np.concatenate(new), places)
        lines, token_ids, columns = (torch.from_numpy(part).to(self.tokens.device) for part in parts)
        self.tokens[lines, columns] = token_ids
        self.counts[lines, token_ids] = self.counts[lines, token_ids].clamp_min(0)
        self.counts.index_put_((lines, token_ids), self.counts.new_ones(()), accumulate=True)

    def _widen(self, width: int) -> None:
        """Let the lines of ``tokens`` have ``width`` places."""
        if width > self.tokens.shape[1]:
            more = max(width, 2 * self.tokens.shape[1]) - self.tokens.shape[1]
            self.tokens = torch.nn.functional.pad(self.tokens, (0, more))
