"""Which core has died, when the notice of its death bears no name. Pure: no sockets."""

from collections.abc import Collection


class DeathNotices:
    """A core's notice is its last message, so whoever is heard after it did not send it.

    Each method returns the ranks that must be the dead ones: as soon as no more are left in question than have died.
    """

    def __init__(self) -> None:
        self._num_dead = 0
        self._suspects: set[int] = set()

    def __bool__(self) -> bool:
        """Some death is not cleared up."""
        return self._num_dead > 0

    def came(self, alive: Collection[int]) -> set[int]:
        """One more of those that were thought ``alive`` is dead."""
        self._num_dead += 1
        self._suspects |= set(alive)  # who was heard after the last notice may have sent this one
        return self._convicted()

    def heard(self, rank: int) -> set[int]:
        """``rank`` is not dead."""
        self._suspects.discard(rank)
        return self._convicted()

    def lost(self, rank: int) -> None:
        """The core of ``rank`` is known to be gone: if it was in question, one death is cleared up."""
        if rank in self._suspects:
            self._suspects.discard(rank)
            self._num_dead -= 1
        if not self._num_dead:
            self._suspects.clear()

    def _convicted(self) -> set[int]:
        return set(self._suspects) if 0 < len(self._suspects) <= self._num_dead else set()
