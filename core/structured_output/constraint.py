"""What keeps one request's output in its form."""

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from core.structured_output.compiler import Compilation, Grammar
from core.structured_output.form import FormError
from core.structured_output.masks import MaskThreads
from core.wire.messages import REFUSED

if TYPE_CHECKING:
    from llguidance import LLMatcher

logger = logging.getLogger(__name__)

Mask = NDArray[np.int32]
"""[words]: bit j of word i is token 32 i + j, 1 allows it."""
_WORD_BITS = 32


class Constraint:
    """Of one request, from its arrival to its end. Owned by the busy loop.

    ``field``: how the form is called in messages. ``end_token_ids``: what ends the request, and so may follow a
    complete text; whatever else a vocabulary has for an end, the request would go on after it.
    """

    def __init__(
        self,
        field: str,
        compilation: Compilation,
        end_token_ids: Collection[int],
        threads: MaskThreads,
        num_words: int,
    ) -> None:
        self._field = field
        self._end_token_ids = frozenset(end_token_ids)
        self._not_end_token_ids: frozenset[int] = frozenset()
        self._threads = threads
        self._num_words = num_words
        self.is_exhausted = False
        """The text is complete, nothing can follow, and there is no token to say so."""
        self._token_ids: list[int] = []
        """What the matcher has taken."""
        self._grammar: Grammar | None = None
        self._matcher: LLMatcher | None = None
        self._mask: Mask | None = None
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
        self._grammar, self._matcher = grammar, grammar.matcher()
        self._token_ids += output_token_ids
        if self._token_ids and not self._matcher.consume_tokens(self._token_ids):
            return f"the output so far does not follow {self._field}"
        self._threads.add(self._compute_mask)
        return None

    @property
    def is_ready(self) -> bool:
        """Whether it knows what may come next."""
        return self._mask is not None

    @property
    def mask(self) -> Mask:
        """The tokens that may come next, once it ``is_ready``. None when the matcher has met a limit, see ``fault``."""
        assert self._mask is not None, "ready"
        return self._mask

    def accept(self, token_id: int) -> bool:
        """Whether ``token_id``, which does not end the request, may stand where it does."""
        # While a thread has the matcher, nobody else may ask it anything.
        assert self.is_ready, "or it would not have been scheduled"
        if not self._running.consume_token(token_id):
            return False
        self._token_ids.append(token_id)
        self.is_exhausted = not self._end_token_ids and self._running.is_accepting() and self._running.is_stopped()
        self._mask = None
        self._threads.add(self._compute_mask)
        return True

    @property
    def fault(self) -> str | None:
        """Why it cannot say what may come next, once it cannot."""
        return f"{self._field}: {self._running.get_error()[:200]}" if self._running.is_error() else None

    def close(self) -> None:
        """The request has ended."""
        self._grammar = self._matcher = None
        if self._compilation is not None:
            self._compilation.leave()
            self._compilation = None

    def _compute_mask(self) -> None:
        """On a thread."""
        grammar, matcher, mask = self._grammar, self._matcher, np.zeros(self._num_words, np.int32)
        if grammar is None or matcher is None:  # closed meanwhile
            return
        try:
            self._fill(mask, matcher)
            if matcher.is_error():  # Others may have used up what there was, so this says nothing of the request.
                self._matcher = matcher = grammar.matcher_of_its_own()
                matcher.consume_tokens(self._token_ids)
                self._fill(mask, matcher)
        except BaseException:  # Native code panics with such, and without a mask the request would wait for ever.
            logger.exception("%s: no mask", self._field)
            mask[:] = 0
        self._mask = mask

    def _fill(self, mask: Mask, matcher: "LLMatcher") -> None:
        if not matcher.is_error():
            matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if matcher.is_error():
            mask[:] = 0
            return
        for token_id in self._not_end_token_ids:
            mask[token_id // _WORD_BITS] &= ~_bit(token_id)
        if matcher.is_accepting():
            for token_id in self._end_token_ids:
                mask[token_id // _WORD_BITS] |= _bit(token_id)

    @property
    def _running(self) -> "LLMatcher":
        assert self._matcher is not None, "started, and not closed"
        return self._matcher


def _bit(token_id: int) -> int:
    """As int32 has it: the highest one is the sign."""
    place = token_id % _WORD_BITS
    return 1 << place if place < _WORD_BITS - 1 else -(1 << place)
