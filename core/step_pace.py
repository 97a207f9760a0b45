"""How much prefill a step may carry beside decodes that are in full flow, so that their tokens come in time.

A step takes what its decodes alone would take, and a little for each token of prefill that it has besides:

    steps that only decode ──▶ how long                                 ─┐
    steps with prefill     ──▶ how much longer, for each of its tokens  ─┴─▶ what makes a step ``max_stretch`` as long

Both are learned from the steps, and each is forgotten only for something newer of its kind: a thousand steps of decodes
say nothing of prefill. What a token costs is known at the sizes that steps have of late, so it may depend on the size.
"""

import math

MIN_PREFILL_TOKENS = 4
"""In each step, whatever they take: every prefill comes to its end."""
_DECODE_MEMORY = 3.0
_PREFILL_MEMORY = 64.0
"""How many steps of decodes, or tokens of prefill, count for as much as all before them."""
_MAX_SURPRISE = 2.0
"""One step counts as this many times as slow or as quick as expected, at most: something may have held it up."""


class StepPace:
    """Owned by the busy loop. ``max_stretch``: a step's time over that of its decodes alone; 0 = no bound."""

    def __init__(self, max_stretch: float) -> None:
        self._max_stretch = max_stretch
        self._decodes_s = _Estimate(_DECODE_MEMORY)
        self._num_decodes = 0
        """For as many it is known what they take."""
        self._prefill_token_s = _Estimate(_PREFILL_MEMORY)

    def __repr__(self) -> str:
        decodes = f"{self._num_decodes} decodes take {1e3 * self._decodes_s.value:.2f} ms"
        return f"StepPace({decodes}, a token of prefill {1e3 * self._prefill_token_s.value:.3f} ms)"

    def observe(self, num_decode_tokens: int, num_prefill_tokens: int, seconds: float) -> None:
        """A step of so many tokens took ``seconds``."""
        if num_prefill_tokens:
            token_s = (seconds - self._decodes_only_s(num_decode_tokens)) / num_prefill_tokens
            self._prefill_token_s.learn(token_s, num_prefill_tokens)
        elif num_decode_tokens:
            self._decodes_s.value = self._decodes_only_s(num_decode_tokens)
            self._decodes_s.learn(seconds, 1)
            self._num_decodes = num_decode_tokens

    def max_prefill_tokens(self, num_decode_tokens: int) -> float:
        """Most tokens of prefill for a step with so many of decodes; ``inf`` without a bound, or before it is known."""
        if not (self._max_stretch and self._decodes_s.value and self._prefill_token_s.value):
            return math.inf
        spare_s = (self._max_stretch - 1) * self._decodes_only_s(num_decode_tokens)
        return max(spare_s // self._prefill_token_s.value, MIN_PREFILL_TOKENS)

    def _decodes_only_s(self, num_tokens: int) -> float:
        """What a step of ``num_tokens`` decodes takes: of others than the last such step had, by what a token costs."""
        if not num_tokens or not self._num_decodes:
            return 0.0
        # Part of a step's time does not depend on its tokens, so no token costs more than its share.
        token_s = min(self._prefill_token_s.value, self._decodes_s.value / self._num_decodes)
        return self._decodes_s.value + token_s * (num_tokens - self._num_decodes)


class _Estimate:
    """An average in which what was learned last counts most; ``value`` 0 = nothing was.

    ``memory``: what amount of something new weighs as much as all that is known.
    """

    def __init__(self, memory: float) -> None:
        self.value = 0.0
        self._memory = memory
        self._amount = 0.0

    def learn(self, observed: float, amount: float) -> None:
        """``amount``: how much ``observed`` is a measurement of. The first ones are soon corrected."""
        if self.value:
            observed = min(max(observed, self.value / _MAX_SURPRISE), self.value * _MAX_SURPRISE)
        self.value += amount / (amount + self._amount) * (max(observed, 0.0) - self.value)
        self._amount = min(self._amount + amount, self._memory)
