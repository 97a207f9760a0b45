"""Tokens that requests name, of all rows of a batch together."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.model.request_state import RequestState
from core.model.sampling.rows import Rows


class NamedTokens(NamedTuple):
    """One entry for each token that a row's request names: ``rows``, ``token_ids`` int64, ``values`` float32."""

    rows: NDArray[np.int64]
    token_ids: NDArray[np.int64]
    values: NDArray[np.float32]


class TokenLists:
    """Reads each request's list once, and puts those of a batch behind one another when the batch changes."""

    def __init__(self, read: Callable[[RequestState], dict[int, float]]) -> None:
        """``read``: the tokens that a request names, with a value for each; for most requests none."""
        self._read = read
        self._lists: dict[RequestState, tuple[NDArray[np.int64], NDArray[np.float32]] | None] = {}

    def arrange(self, rows: Rows) -> NamedTokens | None:
        """None if no request of ``rows`` names any."""
        known, self._lists = self._lists, {}
        for request in dict.fromkeys(rows.requests):
            self._lists[request] = known[request] if request in known else self._make(request)
        found = [(row, lists) for row, request in enumerate(rows.requests) if (lists := self._lists[request])]
        if not found:
            return None
        places, lists = zip(*found, strict=True)
        token_ids, values = zip(*lists, strict=True)
        lengths = [len(one) for one in token_ids]
        return NamedTokens(np.repeat(places, lengths), np.concatenate(token_ids), np.concatenate(values))

    def _make(self, request: RequestState) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
        named = self._read(request)
        if not named:
            return None
        return np.array(list(named), np.int64), np.array(list(named.values()), np.float32)
