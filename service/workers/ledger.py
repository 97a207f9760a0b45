"""What the workers have counted, as they told it last: what those had counted that are gone is not uncounted."""

from collections.abc import Callable


class Ledger:
    """Of one kind of counts, which are encoded."""

    def __init__(self, left_by: Callable[[list[bytes]], bytes]) -> None:
        """``left_by``: what processes that are gone leave behind, all together: their counts, and nothing they held."""
        self._left_by = left_by
        self._told_last: dict[int, bytes] = {}
        self._left: list[bytes] = []

    def note(self, number: int, told: bytes) -> None:
        """A worker says this now."""
        self._told_last[number] = told

    def bury(self, number: int) -> None:
        """The process of that number is gone. Another of the number begins at nothing."""
        if (told := self._told_last.pop(number, None)) is not None:
            self._left = [self._left_by([*self._left, told])]

    @property
    def all(self) -> list[bytes]:
        """To be added up."""
        return [*self._told_last.values(), *self._left]
