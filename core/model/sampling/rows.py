"""The rows of logits that one step chooses tokens from."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.model.request_state import RequestState
from core.wire.sampling_params import SamplingParams


class Row(NamedTuple):
    """What chooses the token of ``request`` at ``position``, after the ``position`` tokens before it.

    Those are in ``request.token_ids``, drafts that nobody has accepted yet among them.
    """

    request: RequestState
    position: int


class Rows:
    """All rows of one call, in the order of the logits. A request may have several, of rising positions."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.requests = [row.request for row in rows]
        self._rows = rows

    def __len__(self) -> int:
        return len(self.requests)

    def asking(self, wants: Callable[[SamplingParams], object]) -> list[int]:
        """The rows whose requests want something, by index."""
        return [row for row, request in enumerate(self.requests) if wants(request.sampling_params)]

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """Of the tokens to choose. Plain greedy rows do not ask."""
        return np.array([row.position for row in self._rows], np.int64)

    @cached_property
    def num_output_tokens(self) -> NDArray[np.int64]:
        """How many tokens of output stand before each row."""
        return self.positions - np.array([request.num_prompt_tokens for request in self.requests], np.int64)

    def output_token_ids(self, row: int) -> NDArray[np.int64]:
        """The output before the row."""
        request = self.requests[row]
        return request.token_ids.array[request.num_prompt_tokens : self.positions[row]]
