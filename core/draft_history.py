"""What speculation keeps of one request."""

from array import array

import numpy as np
from numpy.typing import NDArray

_LONGEST_WAIT = 31


class DraftHistory:
    """The request's tokens, as numpy reads them, and how its drafts fare.

    A wrong token costs little in a step of few tokens and a good part of a right one's worth in a step of many. So
    drafts grow with what was right: of one that was all wrong they begin again at one token, and not at once.
    """

    def __init__(self) -> None:
        self._tokens = array("q")
        self._wait = 0
        self._num_steps_to_wait = 0
        self._longest = 1

    def take_turn(self) -> int:
        """Most tokens for a draft now; if 0, a step less is to be waited for."""
        if self._num_steps_to_wait == 0:
            return self._longest
        self._num_steps_to_wait -= 1
        return 0

    def follow(self, token_ids: list[int]) -> NDArray[np.int64]:
        """All of ``token_ids``, which go on where those of the last call ended. Valid until the next call."""
        self._tokens.extend(token_ids[len(self._tokens) :])
        return np.frombuffer(self._tokens, np.int64)

    def judge(self, num_accepted_tokens: int) -> None:
        """Let the next draft be twice as long as what was right, and one more.

        If nothing was, come steps without one: 1, 3, 7, … at most 31 of them.
        """
        self._longest = 2 * num_accepted_tokens + 1
        self._wait = 0 if num_accepted_tokens else min(2 * self._wait + 1, _LONGEST_WAIT)
        self._num_steps_to_wait = self._wait
