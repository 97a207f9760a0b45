"""What requests ask to change in the logits before a token is chosen, each feature for the rows that ask for it.

A processor lives as long as the sampler. ``arrange`` is called when other requests share the batch, ``apply`` at
every step; what a request needs is made once, when it comes.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from core.model.request_state import RequestState
from core.model.sampling.rows import Rows
from core.model.sampling.slots import Slots, grow_lines
from core.model.sampling.token_lists import NamedTokens, TokenLists

_OCTETS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_CEILINGS_OF_OCTET = torch.where(torch.from_numpy(_OCTETS) > 0, torch.inf, -torch.inf)
"""float32 [256, 8]: what the tokens of eight bits may at most have. Eight at once takes a twentieth of one by one."""


class LogitsProcessor(Protocol):
    def arrange(self, rows: Rows, logits: Tensor) -> bool:
        """Get ready for the requests of ``rows``; False: none of them asks for this."""
        ...

    def apply(self, logits: Tensor, rows: Rows) -> None:
        """Change ``logits`` float32 [rows, vocab_size] in place."""
        ...


class TokenMask:
    """What a grammar leaves to the rows ``indices`` of a batch, none twice; rows that no grammar binds are not there.

    In ``bits`` int32 [len(indices), words], bit j of word i is token 32 i + j, and 1 keeps it; later tokens go.
    """

    def __init__(self, indices: Sequence[int], bits: Tensor) -> None:
        self._indices, self._bits = list(indices), bits

    def apply(self, logits: Tensor) -> None:
        vocab_size, device = logits.shape[1], logits.device
        bits = torch.nn.functional.pad(self._bits, (0, -(-vocab_size // 32) - self._bits.shape[1]))
        octets = bits.view(torch.uint8).to(device).int()
        ceilings = _CEILINGS_OF_OCTET.to(device).index_select(0, octets.flatten()).view(len(octets), -1)
        _cap(logits, torch.tensor(self._indices, device=device), ceilings[:, :vocab_size])


class AllowedTokens:
    """Only ``allowed_token_ids`` keep their logits."""

    def __init__(self) -> None:
        self._slots = Slots()
        self._ceilings: Tensor | None = None

    def arrange(self, rows: Rows, logits: Tensor) -> bool:
        asking = rows.asking(lambda params: params.allowed_token_ids)
        requests = [rows.requests[row] for row in asking]
        newcomers = self._slots.arrange(requests)
        if not asking:
            self._ceilings = None
            return False
        if self._ceilings is None:
            self._ceilings = logits.new_empty((0, logits.shape[1]))
        self._ceilings = grow_lines(self._ceilings, len(self._slots))
        for request in newcomers:
            line = self._ceilings[self._slots[request]].fill_(-torch.inf)
            line[torch.tensor(request.sampling_params.allowed_token_ids, device=logits.device)] = torch.inf
        self._rows = torch.tensor(asking, device=logits.device)
        self._lines = torch.tensor([self._slots[request] for request in requests], device=logits.device)
        return True

    def apply(self, logits: Tensor, _: Rows) -> None:
        assert self._ceilings is not None, "someone asked"
        _cap(logits, self._rows, self._ceilings.index_select(0, self._lines))


class BadWords:
    """The last token of a bad word is masked whenever the output ends with the tokens before it.

    Words of one token are masked as they are. The others are found by the token before their last one, so that a step
    looks at no word whose turn it cannot be.
    """

    def __init__(self) -> None:
        self._single_tokens = _Masked(_single_token_words)
        self._words: dict[RequestState, dict[int, list[list[int]]]] = {}
        self._asking: list[int] = []

    def arrange(self, rows: Rows, logits: Tensor) -> bool:
        has_single_tokens = self._single_tokens.arrange(rows, logits)
        self._asking = rows.asking(lambda params: params.bad_words_token_ids)
        known, self._words = self._words, {}
        for request in dict.fromkeys(rows.requests[row] for row in self._asking):
            self._words[request] = known[request] if request in known else _words_by_last_but_one(request)
        self._asking = [row for row in self._asking if self._words[rows.requests[row]]]
        return has_single_tokens or bool(self._asking)

    def apply(self, logits: Tensor, rows: Rows) -> None:
        self._single_tokens.apply(logits, rows)
        found = [(row, token_id) for row in self._asking for token_id in self._due_tokens(rows, row)]
        if found:
            row_of, token_ids = torch.tensor(found, device=logits.device).unbind(1)
            logits[row_of, token_ids] = -torch.inf

    def _due_tokens(self, rows: Rows, row: int) -> list[int]:
        output = rows.output_token_ids(row)
        words = self._words[rows.requests[row]].get(int(output[-1])) if len(output) else None
        return [last for *start, last in words or () if output[-len(start) :].tolist() == start]


class MinTokens:
    """Every token that would end the request is masked until it has ``min_tokens`` tokens."""

    def __init__(self) -> None:
        self._stops = TokenLists(_held_back_tokens)

    def arrange(self, rows: Rows, _: Tensor) -> bool:
        stops = self._stops.arrange(rows)
        self._min_tokens = np.array([request.sampling_params.min_tokens for request in rows.requests])
        if stops is None or not (rows.num_output_tokens < self._min_tokens).any():
            return False
        self._named = stops
        return True

    def apply(self, logits: Tensor, rows: Rows) -> None:
        is_short = (rows.num_output_tokens < self._min_tokens)[self._named.rows]
        if is_short.any():
            row_of, token_ids = (torch.from_numpy(part[is_short]) for part in self._named[:2])
            logits[row_of.to(logits.device), token_ids.to(logits.device)] = -torch.inf


class LogitBias:
    """``logit_bias`` is added."""

    def __init__(self) -> None:
        self._biases = TokenLists(lambda request: request.sampling_params.logit_bias or {})

    def arrange(self, rows: Rows, logits: Tensor) -> bool:
        biases = self._biases.arrange(rows)
        if biases is not None:
            self._rows, self._token_ids, self._values = _on(logits, biases)
        return biases is not None

    def apply(self, logits: Tensor, _: Rows) -> None:
        logits[self._rows, self._token_ids] += self._values


class _Masked:
    """Tokens that requests never get."""

    def __init__(self, read: Callable[[RequestState], dict[int, float]]) -> None:
        self._lists = TokenLists(read)

    def arrange(self, rows: Rows, logits: Tensor) -> bool:
        named = self._lists.arrange(rows)
        self._where = None if named is None else _on(logits, named)[:2]
        return named is not None

    def apply(self, logits: Tensor, _: Rows) -> None:
        if self._where is not None:
            logits[self._where] = -torch.inf


def _single_token_words(request: RequestState) -> dict[int, float]:
    return {word[0]: 0.0 for word in request.sampling_params.bad_words_token_ids or () if len(word) == 1}


def _words_by_last_but_one(request: RequestState) -> dict[int, list[list[int]]]:
    words: dict[int, list[list[int]]] = {}
    for word in request.sampling_params.bad_words_token_ids or ():
        if len(word) > 1:
            words.setdefault(word[-2], []).append(word)
    return words


def _held_back_tokens(request: RequestState) -> dict[int, float]:
    params = request.sampling_params
    if not params.min_tokens:
        return {}
    eos = [] if params.eos_token_id is None else [params.eos_token_id]
    return dict.fromkeys([*eos, *params.all_stop_token_ids, *(params.stop_token_ids or ())], 0.0)


def _on(logits: Tensor, named: NamedTokens) -> tuple[Tensor, Tensor, Tensor]:
    rows, token_ids, values = (torch.from_numpy(part).to(logits.device) for part in named)
    return rows, token_ids, values


def _cap(logits: Tensor, rows: Tensor, ceilings: Tensor) -> None:
    """``ceilings`` [len(rows), vocab_size]: infinity keeps a logit, minus infinity masks it.

    The minimum of two floats takes a tenth of what a choice by a bool takes; more memory would take longest.
    """
    own = logits.index_select(0, rows)
    logits.index_copy_(0, rows, torch.minimum(own, ceilings, out=own))
