"""What keeps one request's output in its form."""

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from core.structured_output.compiler import Compilation
from core.structured_output.form import FormError
from core.wire.messages import REFUSED

if TYPE_CHECKING:
    from llguidance import LLMatcher

logger = logging.getLogger(__name__)

_WORD_BITS = 32


class Constraint:
    """Of one request, from its arrival to its end. Owned by the busy loop.

    ``field``: how the form is called in messages. ``end_token_ids``: what ends the request, and so may follow a
    complete text; whatever else a vocabulary has for an end, the request would go on after it.
    """

    def __init__(self, field: str, compilation: Compilation, end_token_ids: Collection[int]) -> None:
        self._field = field
        self._end_token_ids = frozenset(end_token_ids)
        self._not_end_token_ids: frozenset[int] = frozenset()
        self._matcher: LLMatcher | None = None
        self._compilation: Compilation | None = compilation
        compilation.join()

    @property
    def is_settled(self) -> bool:
        """Whether ``start`` has something to say."""
        return self._compilation is None or self._compilation.is_done

    def start(self, output_token_ids: Sequence[int]) -> str | None:
        """Go on behind the output so far. Why the request has to end instead, or None."""
        assert self._compilation is not None, "not closed"
        try:
            grammar = self._compilation.result()
        except FormError as error:
            return f"{REFUSED}{self._field} {error}"
        except Exception as error:
            logger.exception("%s could not be compiled", self._field)
            return f"{self._field} could not be compiled: {error!r}"
        self._not_end_token_ids = grammar.end_token_ids - self._end_token_ids
        self._matcher = grammar.matcher.deep_copy()
        if not self._matcher.consume_tokens(list(output_token_ids)):
            return f"the output so far does not follow {self._field}"
        return None

    def fill(self, mask: NDArray[np.int32]) -> None:
        """Set the bits of the tokens that may come next, and of no others, in ``mask`` [words]: bit j of word i is
        token 32 i + j. None is set when the matcher has met one of its limits, which ``fault`` tells."""
        self._running.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._running.is_error():
            mask[:] = 0
            return
        for token_id in self._not_end_token_ids:
            mask[token_id // _WORD_BITS] &= ~_bit(token_id)
        if self._running.is_accepting():
            for token_id in self._end_token_ids:
                mask[token_id // _WORD_BITS] |= _bit(token_id)

    def accept(self, token_id: int) -> bool:
        """Whether ``token_id``, which does not end the request, may stand where it does."""
        return self._running.consume_token(token_id)

    @property
    def is_exhausted(self) -> bool:
        """The text is complete, nothing can follow, and there is no token to say so."""
        return not self._end_token_ids and self._running.is_accepting() and self._running.is_stopped()

    @property
    def fault(self) -> str | None:
        """Why it cannot say what may come next."""
        return f"{self._field}: {self._running.get_error()[:200]}" if self._running.is_error() else None

    def close(self) -> None:
        """The request has ended."""
        self._matcher = None
        if self._compilation is not None:
            self._compilation.leave()
            self._compilation = None

    @property
    def _running(self) -> "LLMatcher":
        assert self._matcher is not None, "started, and not closed"
        return self._matcher


def _bit(token_id: int) -> int:
    """As int32 has it: the highest one is the sign."""
    place = token_id % _WORD_BITS
    return 1 << place if place < _WORD_BITS - 1 else -(1 << place)
