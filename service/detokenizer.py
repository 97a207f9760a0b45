"""Tokens to text as they come, never half a character.

Tokens are bytes, text is their UTF-8: what is incomplete waits, what is invalid becomes U+FFFD, exactly as it would if
all tokens were decoded at once. ``tokenizers.DecodeStream`` decodes everything since the last complete character again
for each token, and fails or repeats itself where the bytes are no UTF-8.
"""

from codecs import utf_8_decode
from collections.abc import Mapping, Sequence

from service.text.token_bytes import UnknownTokenError

_MAX_INCOMPLETE_BYTES = 3
_REPLACEMENT = "\ufffd"


class Detokenizer:
    """The text of one sequence.

    A character that the prompt begins and the output completes belongs to the output; one that is never completed
    leaves no trace in it.
    """

    __slots__ = ("_prompt_tail", "_token_bytes", "pending")

    def __init__(self, token_bytes: Mapping[int, bytes], prompt_token_ids: Sequence[int] = ()) -> None:
        self._token_bytes = token_bytes
        self._prompt_tail = _incomplete_tail(token_bytes, prompt_token_ids)
        self.pending = b""
        """What has come of a character that is incomplete."""

    def feed(self, token_id: int) -> str:
        """The text that ``token_id`` completes, often its own. Raises UnknownTokenError."""
        new = self._token_bytes[token_id]
        if self._prompt_tail and new:
            new = self._joined_to_prompt(new)
        data = self.pending + new
        text, num_used = utf_8_decode(data, "replace", False)
        self.pending = data[num_used:]
        return text

    def peek(self, token_ids: Sequence[int]) -> tuple[str, bytes] | None:
        """The text that ``feed`` would give for all, and what would then be ``pending``: set that if the text
        is used. None: only ``feed`` can tell, as a character of the prompt is incomplete, or a token unknown.
        """
        if self._prompt_tail:
            return None
        token_bytes = self._token_bytes
        try:
            if len(token_ids) == 1:
                data = self.pending + token_bytes[token_ids[0]]
            else:
                data = self.pending + b"".join([token_bytes[token_id] for token_id in token_ids])
        except UnknownTokenError:
            return None
        try:
            return data.decode(), b""  # whole characters, as nearly always
        except UnicodeDecodeError:
            text, num_used = utf_8_decode(data, "replace", False)
        return text, data[num_used:]

    def skip(self, token_id: int) -> None:
        """Pass over ``token_id`` without its text. Raises UnknownTokenError."""
        _ = self._token_bytes[token_id]

    def flush(self) -> str:
        """What is left at the end: U+FFFD if the last character is incomplete."""
        pending, self.pending = self.pending, b""
        return pending.decode(errors="replace")

    def _joined_to_prompt(self, new: bytes) -> bytes:
        tail, self._prompt_tail = self._prompt_tail, b""
        text, _ = utf_8_decode(tail + new[:1], "replace", False)
        return new if text.startswith(_REPLACEMENT) else tail + new


def _incomplete_tail(token_bytes: Mapping[int, bytes], token_ids: Sequence[int]) -> bytes:
    """The bytes at the end of ``token_ids`` that begin a character and do not complete it."""
    end = b""
    for token_id in reversed(token_ids):
        end = token_bytes[token_id] + end
        if len(end) >= _MAX_INCOMPLETE_BYTES:
            break
    _, num_used = utf_8_decode(end, "replace", False)
    return end[num_used:]
