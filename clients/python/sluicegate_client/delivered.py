"""What the reader of a stream has, so that an answer that is made again goes on where it broke off."""

from collections import defaultdict
from typing import TypeVar

from sluicegate_client.responses import Delta

_Items = TypeVar("_Items", str, list[int])


class DiffersError(Exception):
    """The answer is not the one that was delivered; ``str()`` says where."""


class Delivered:
    """Of each sequence what was delivered, and how far an answer that is made again has come in it.

    Answers are cut into deltas wherever the server's writing and the reader's reading cut them: text, tokens and
    log-probabilities are counted each for itself.
    """

    def __init__(self) -> None:
        self._sequences: defaultdict[int, _Sequence] = defaultdict(_Sequence)

    def repeat(self) -> None:
        """The answer begins anew."""
        for sequence in self._sequences.values():
            sequence.repeat()

    def new_part(self, delta: Delta) -> Delta | None:
        """What of ``delta`` was not delivered before. Raises DiffersError."""
        try:
            return self._sequences[delta.index].new_part(delta)
        except DiffersError as error:
            raise DiffersError(f"sequence {delta.index} at {error}") from None

    def check_end(self, index: int) -> None:
        """Raises DiffersError unless all that was delivered has come again."""
        if not self._sequences[index].has_come_again:
            raise DiffersError(f"sequence {index} ends before what was delivered")


class _Sequence:
    def __init__(self) -> None:
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._num_logprobs = 0
        self.repeat()

    def repeat(self) -> None:
        self._known_text = "".join(self._texts)
        self._known_token_ids = [*self._token_ids]
        self._known_num_logprobs = self._num_logprobs
        self._texts = [self._known_text]
        self._num_characters_again = self._num_tokens_again = self._num_logprobs_again = 0

    @property
    def has_come_again(self) -> bool:
        return self._num_characters_again >= len(self._known_text) and self._num_tokens_again >= len(
            self._known_token_ids
        )

    def new_part(self, delta: Delta) -> Delta | None:
        text = _beyond(self._known_text, self._num_characters_again, delta.text, "character")
        token_ids = _beyond(self._known_token_ids, self._num_tokens_again, delta.token_ids, "token")
        logprobs = delta.logprobs[max(0, self._known_num_logprobs - self._num_logprobs_again) :]
        self._num_characters_again += len(delta.text)
        self._num_tokens_again += len(delta.token_ids)
        self._num_logprobs_again += len(delta.logprobs)
        self._texts.append(text)
        self._token_ids += token_ids
        self._num_logprobs += len(logprobs)
        return Delta(delta.index, text, token_ids, logprobs) if text or token_ids or logprobs else None


def _beyond(known: _Items, position: int, items: _Items, unit: str) -> _Items:
    """What of ``items``, which came at ``position``, goes beyond what is ``known``."""
    overlap = known[position : position + len(items)]
    for number, (one, other) in enumerate(zip(overlap, items, strict=False)):
        if one != other:
            raise DiffersError(f"{unit} {position + number}")
    return items[len(overlap) :]
