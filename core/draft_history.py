"""What speculation keeps of one request."""

from array import array

import numpy as np
from numpy.typing import NDArray

_LONGEST_WAIT = 31


class DraftHistory:
    """The request's tokens, as numpy reads them, and how its drafts fare."""

    def __init__(self) -> None:
        self._tokens = array("q")
        self._wait = 0
        self._num_steps_to_wait = 0

    def take_turn(self) -> bool:
        """Whether it is time for a draft; if not, a step less is to be waited for."""
        is_time = self._num_steps_to_wait == 0
        self._num_steps_to_wait -= not is_time
        return is_time

    def follow(self, token_ids: list[int]) -> NDArray[np.int64]:
        """All of ``token_ids``, which go on where those of the last call ended. Valid until the next call."""
        self._tokens.extend(token_ids[len(self._tokens) :])
        return np.frombuffer(self._tokens, np.int64)

    def judge(self, num_accepted_tokens: int) -> None:
        """After a draft of which nothing was right come steps without one: 1, 3, 7, … at most 31 of them."""
        self._wait = 0 if num_accepted_tokens else min(2 * self._wait + 1, _LONGEST_WAIT)
        self._num_steps_to_wait = self._wait
