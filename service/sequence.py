"""One sequence of a request: the core's outputs in, text and tokens for the client out. Pure: no IO, no clock."""

import msgspec

from core.wire.messages import EngineCoreOutput, FinishReason, LogprobsLists
from service.detokenizer import Detokenizer
from service.generation_request import GenerationRequest
from service.text.stop_strings import StopStrings
from service.text.tokenizer import Tokenizer


class SequenceFinish(msgspec.Struct, frozen=True, gc=False):
    """How a sequence ended. For the end-of-sequence token neither ``stop_token_id`` nor ``stop_string`` is set.

    ``num_output_tokens`` counts up to and including the token that ended it.
    """

    reason: FinishReason
    stop_token_id: int | None
    stop_string: str | None
    num_output_tokens: int

    @property
    def word(self) -> str:
        """The reason as vLLM spells it: ``stop``, ``length``, ``abort``, ``error``, ``repetition``."""
        return self.reason.name.lower()


class SequenceDelta(msgspec.Struct, frozen=True, gc=False):
    """What one output of the core adds. ``logprobs`` has a row for each token, or is None."""

    text: str
    token_ids: list[int]
    logprobs: LogprobsLists | None
    finish: SequenceFinish | None


class Sequence:
    """The ``index``-th of the ``n`` sequences of ``request``. After a delta with ``finish`` nothing more is fed.

    Tokens are taken one by one, so that text and stop do not depend on how many come in one output.
    """

    __slots__ = (
        "_detokenizer",
        "_has_end_tokens",
        "_has_stop_strings",
        "_min_tokens",
        "_num_output_tokens",
        "_stop",
        "_stop_strings",
        "_wants_text",
        "index",
    )

    def __init__(self, index: int, request: GenerationRequest, tokenizer: Tokenizer) -> None:
        self.index = index
        self._num_output_tokens = 0
        params = request.sampling_params
        self._min_tokens = params.min_tokens
        self._has_end_tokens = params.eos_token_id is not None or bool(params.stop_token_ids)
        self._stop = request.stop
        self._wants_text = request.output.text
        token_bytes = tokenizer.spoken_bytes if request.output.skip_special_tokens else tokenizer.token_bytes
        self._detokenizer = Detokenizer(token_bytes, request.prompt_token_ids)
        self._has_stop_strings = bool(request.stop.strings)
        self._stop_strings = _NO_STOP_STRINGS
        if self._has_stop_strings:
            self._stop_strings = StopStrings(request.stop.strings, request.stop.include_in_output)

    def feed(self, output: EngineCoreOutput) -> SequenceDelta:
        """Raises UnknownTokenError for a token id outside the vocabulary: this sequence is lost, and no other."""
        num_before = self._num_output_tokens
        text = self._text_of(output)
        num_new = self._num_output_tokens - num_before
        return SequenceDelta(
            text if self._wants_text else "",
            output.new_token_ids[:num_new],
            _first_rows(output.new_logprobs, num_new),
            self._finish_of(output),
        )

    def pass_through(self, token_ids: list[int]) -> str | None:
        """The text that ``feed`` would give for an output of these tokens that ends nothing. Runs for every token.

        None: nothing was taken, only ``feed`` can tell.
        """
        seen = self._detokenizer.peek(token_ids)
        if seen is None:
            return None
        text, pending = seen
        if self._has_stop_strings and not self._stop_strings.ignores(text):
            return None
        self._detokenizer.pending = pending
        self._num_output_tokens += len(token_ids)
        return text if self._wants_text else ""

    def broken_off(self) -> SequenceFinish:
        """How it ends when an output cannot be used; nothing is fed after this."""
        return SequenceFinish(FinishReason.ERROR, None, None, self._num_output_tokens)

    def _text_of(self, output: EngineCoreOutput) -> str:
        num_shown = len(output.new_token_ids) - self._hides_last_token(output)
        text = ""
        for position, token_id in enumerate(output.new_token_ids):
            self._num_output_tokens += 1
            if position < num_shown:
                text += self._let_through(self._detokenizer.feed(token_id))
                if self._stop_strings.matched is not None:
                    return text
            else:
                self._detokenizer.skip(token_id)
        if output.finish_reason is not None:
            text += self._let_through(self._detokenizer.flush()) + self._stop_strings.flush()
        return text

    def _hides_last_token(self, output: EngineCoreOutput) -> bool:
        """The token that the core stopped at is no text, unless the client wants to see it.

        Where none is one to stop at, as with ``ignore_eos``, it is a form that is complete with its last token.
        """
        stops_at_a_token = output.finish_reason is FinishReason.STOP and self._has_end_tokens
        return stops_at_a_token and not self._stop.include_in_output

    def _let_through(self, piece: str) -> str:
        return self._stop_strings.feed(piece, armed=self._num_output_tokens > self._min_tokens)

    def _finish_of(self, output: EngineCoreOutput) -> SequenceFinish | None:
        stop_string = self._stop_strings.matched
        if stop_string is not None:
            return SequenceFinish(FinishReason.STOP, None, stop_string, self._num_output_tokens)
        if output.finish_reason is None:
            return None
        # The core also stops at the model's further end-of-sequence tokens, which the client need not have named.
        stop_token_id = output.stop_reason if output.stop_reason in self._stop.token_ids else None
        assert not isinstance(stop_token_id, str)
        return SequenceFinish(output.finish_reason, stop_token_id, None, self._num_output_tokens)


_NO_STOP_STRINGS = StopStrings(())
"""It lets everything through, and keeps nothing of it: one does for all."""


def _first_rows(logprobs: LogprobsLists | None, num_rows: int) -> LogprobsLists | None:
    if logprobs is None or len(logprobs.ranks) == num_rows:
        return logprobs
    return LogprobsLists(logprobs.token_ids[:num_rows], logprobs.logprobs[:num_rows], logprobs.ranks[:num_rows])
