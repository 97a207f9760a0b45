"""Ids to abort between a step's forward pass and its update."""

import queue


class AbortsQueue:
    """The input thread puts, the busy loop takes. Each of these aborts comes by the input queue too."""

    def __init__(self) -> None:
        self._batches: queue.SimpleQueue[list[str]] = queue.SimpleQueue()

    def put(self, request_ids: list[str]) -> None:
        self._batches.put(request_ids)

    def empty(self) -> bool:
        return self._batches.empty()

    def take(self) -> list[str]:
        """All that are there, in their order."""
        request_ids: list[str] = []
        while not self._batches.empty():
            request_ids += self._batches.get_nowait()
        return request_ids
