"""What one core has done lately, for whoever shares requests out among servers."""

from collections import deque

WINDOW_S = 2.0
_SLICE_S = 0.1
_NUM_SLICES = round(WINDOW_S / _SLICE_S)
_NUM_PROMPTS = 64


class RecentWork:
    """Tokens generated in the last ``WINDOW_S``, and what was cached of the last 64 prompts. Bounded, however busy.

    Times are seconds of any one clock that never goes back.
    """

    def __init__(self) -> None:
        self._slices: deque[list[int]] = deque(maxlen=_NUM_SLICES)
        """The number of a slice of time, and the tokens that came in it."""
        self._prompts: deque[tuple[int, int]] = deque(maxlen=_NUM_PROMPTS)

    def note_tokens(self, num_tokens: int, now: float) -> None:
        """So many were generated."""
        number = int(now / _SLICE_S)
        if self._slices and self._slices[-1][0] == number:
            self._slices[-1][1] += num_tokens
        else:
            self._slices.append([number, num_tokens])

    def note_prompt(self, num_tokens: int, num_cached_tokens: int) -> None:
        """One was computed, of which ``num_cached_tokens`` were cached."""
        self._prompts.append((num_tokens, min(num_cached_tokens, num_tokens)))

    def tokens_per_second(self, now: float) -> float:
        """Over the last ``WINDOW_S``."""
        last = int(now / _SLICE_S)
        return sum(num for number, num in self._slices if last - number < _NUM_SLICES) / WINDOW_S

    @property
    def cache_hit_rate(self) -> float:
        """In [0, 1], by tokens; 0 before the first prompt."""
        num_tokens = sum(num for num, _ in self._prompts)
        return sum(num_cached for _, num_cached in self._prompts) / num_tokens if num_tokens else 0.0
