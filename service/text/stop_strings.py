"""Finding stop strings in text that comes in pieces, holding back only what may still become one.

The stop string that is complete first wins; of several complete at the same character, the longest. That is what a
reader of single characters would see, so the cut does not depend on how the text was divided into pieces.

Each stop string is an automaton after Knuth, Morris and Pratt: it knows the longest of its prefixes that the text ends
with, and a character costs constant time however long the string.
"""

from collections.abc import Sequence
from functools import lru_cache


class StopStrings:
    """The stop strings of one sequence. After a match nothing more is fed.

    ``include_match``: the text that is let through ends with the stop string instead of before it.
    """

    __slots__ = ("_automata", "_first_chars", "_held", "_include_match", "_num_matched", "matched")

    def __init__(self, stops: Sequence[str], include_match: bool = False) -> None:
        self._automata = [_Automaton(stop) for stop in sorted(stops, key=len, reverse=True)]
        self._first_chars = frozenset(stop[0] for stop in stops)
        self._include_match = include_match
        self._num_matched = 0
        self._held = ""
        self.matched: str | None = None

    def feed(self, piece: str, armed: bool = True) -> str:
        """The text that may be let through now. Sets ``matched`` if a stop string ends in ``piece``.

        Not ``armed``: one that ends in ``piece`` is passed over; one that only begins there still counts.
        """
        if self.ignores(piece):
            return piece
        for position, char in enumerate(piece, start=1):
            # A list, not a generator: every automaton must see every character.
            completed = [automaton.stop for automaton in self._automata if automaton.advance(char)]
            if completed and armed:
                return self._stop_at(completed[0], self._held + piece[:position])
        self._num_matched = max(automaton.num_matched for automaton in self._automata)
        return self._release(self._held + piece)

    def ignores(self, piece: str) -> bool:
        """``piece`` can have no part in a stop string: ``feed`` would let it through."""
        return not self._num_matched and self._first_chars.isdisjoint(piece)

    def flush(self) -> str:
        """What was held back, at the end of a sequence that met no stop string."""
        held, self._held = self._held, ""
        return held

    def _stop_at(self, stop: str, text: str) -> str:
        self.matched, self._held = stop, ""
        return text if self._include_match else text[: len(text) - len(stop)]

    def _release(self, text: str) -> str:
        if self._include_match:
            return text
        num_released = len(text) - self._num_matched
        self._held = text[num_released:]
        return text[:num_released]


class _Automaton:
    __slots__ = ("_fallbacks", "num_matched", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self._fallbacks = _fallbacks_of(stop)
        self.num_matched = 0

    def advance(self, char: str) -> bool:
        """Does the stop string end with ``char``?"""
        num_matched = self.num_matched
        while num_matched and self.stop[num_matched] != char:
            num_matched = self._fallbacks[num_matched - 1]
        if self.stop[num_matched] == char:
            num_matched += 1
        is_complete = num_matched == len(self.stop)
        self.num_matched = self._fallbacks[-1] if is_complete else num_matched
        return is_complete


@lru_cache(maxsize=256)
def _fallbacks_of(stop: str) -> tuple[int, ...]:
    """Entry i: length of the longest proper prefix of ``stop`` that its first i+1 characters end with."""
    fallbacks = [0]
    for char in stop[1:]:
        length = fallbacks[-1]
        while length and stop[length] != char:
            length = fallbacks[length - 1]
        fallbacks.append(length + (stop[length] == char))
    return tuple(fallbacks)
