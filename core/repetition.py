"""Whether an output has begun to repeat itself."""

import numpy as np

from core.wire.sampling_params import RepetitionDetection


class Repetition:
    """Watches the output of one request for ``min_count`` copies of one pattern, of a size that is allowed, at its end.

    For each size it counts for how many tokens in a row, up to the last, the output has equalled itself that many
    tokens before: of copies of a pattern all but the first are such tokens. So a token costs the same however long the
    output is.
    """

    def __init__(self, wanted: RepetitionDetection, max_num_tokens: int) -> None:
        """``max_num_tokens``: longest output."""
        # Clamped, because what is asked for may be beyond what numpy's integers hold.
        min_count, min_size = (min(n, max_num_tokens + 1) for n in (wanted.min_count, wanted.min_pattern_size))
        longest = min(wanted.max_pattern_size, max_num_tokens // max(min_count, 1))
        sizes = np.arange(longest, 0, -1)
        self._recent = np.full(longest, -1)
        """The last tokens, so that each stands as far from the next one as its size says."""
        self._num_equal = np.zeros(longest, np.int64)
        self._num_needed = np.where(sizes >= min_size, sizes * (min_count - 1), max_num_tokens)
        self._num_seen = 0

    def take(self, token_ids: list[int], num_prompt_tokens: int) -> bool:
        """Look at the tokens that have come since the last call. True: the output ends with such copies."""
        for token_id in token_ids[num_prompt_tokens + self._num_seen :]:
            self._num_equal = np.where(self._recent == token_id, self._num_equal + 1, 0)
            self._recent[:-1] = self._recent[1:]
            self._recent[-1:] = token_id
        self._num_seen = len(token_ids) - num_prompt_tokens
        return bool((self._num_equal >= self._num_needed).any())
