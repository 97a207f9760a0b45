"""The last batches of one core, for subscribers that come back."""

from collections import deque
from collections.abc import Sequence

MAX_BATCHES = 10_000
"""As many as a core keeps itself."""
MAX_BYTES = 16 * 2**20


class History:
    """Consecutive batches as they came over the wire; the oldest give way to new ones."""

    def __init__(self, max_batches: int = MAX_BATCHES, max_bytes: int = MAX_BYTES) -> None:
        self._max_batches = max_batches
        self._max_bytes = max_bytes
        self._payloads: deque[bytes] = deque()
        self._num_bytes = 0
        self._first_number = 0

    def add(self, number: int, payload: bytes) -> None:
        if not self._payloads:
            self._first_number = number
        self._payloads.append(payload)
        self._num_bytes += len(payload)
        while self._num_bytes > self._max_bytes or len(self._payloads) > self._max_batches:
            self._num_bytes -= len(self._payloads.popleft())
            self._first_number += 1

    def since(self, number: int) -> Sequence[tuple[int, bytes]] | None:
        """The batches from ``number`` on; None if that is not kept."""
        if not self._payloads or number < self._first_number:
            return None
        kept = enumerate(self._payloads, self._first_number)
        return [(kept_number, payload) for kept_number, payload in kept if kept_number >= number]

    def clear(self) -> None:
        self._payloads.clear()
        self._num_bytes = 0
