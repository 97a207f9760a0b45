"""What one step computes of one request."""

from typing import NamedTuple

from core.model.request_state import RequestState

_SMALLEST_BUCKET = 128
"""Contexts up to this many tokens are padded to each other freely."""


class Span(NamedTuple):
    """``num_tokens`` tokens of ``request`` from position ``start`` on."""

    request: RequestState
    start: int
    num_tokens: int

    @property
    def stop(self) -> int:
        return self.start + self.num_tokens

    @property
    def is_sampled(self) -> bool:
        """A chunk that leaves known tokens uncomputed has nothing to choose yet."""
        return self.stop == len(self.request.token_ids)

    @property
    def group_key(self) -> tuple[int, int]:
        """New tokens, then the power of two that the context fits in: padding at most doubles a context."""
        return self.num_tokens, max(self.stop, _SMALLEST_BUCKET).bit_length()
