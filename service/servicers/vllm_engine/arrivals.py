"""Requests that are being read and do not run yet: an Abort may name one before the generator knows it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(eq=False)
class Arrival:
    """One of them. ``is_aborted``: it should not run."""

    request_id: str
    is_aborted: bool = False


class Arrivals:
    """Owned by the event loop. A router aborts what its client has left and reads on: nothing else would end it."""

    def __init__(self) -> None:
        self._waiting: set[Arrival] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def one(self, request_id: str) -> Iterator[Arrival]:
        """Known by ``request_id`` until the block is left."""
        arrival = Arrival(request_id)
        self._waiting.add(arrival)
        try:
            yield arrival
        finally:
            self._waiting.discard(arrival)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Let those not run. Unknown ids are ignored."""
        named = set(request_ids)
        for arrival in self._waiting:
            arrival.is_aborted |= arrival.request_id in named
