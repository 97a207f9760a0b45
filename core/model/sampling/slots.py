"""Where the requests of a batch have their lines in a feature's tables."""

from collections.abc import Iterable

from torch import Tensor

from core.model.request_state import RequestState


class Slots:
    """A request keeps its slot while it stays, so that whoever comes or goes costs only their own lines."""

    def __init__(self) -> None:
        self._slots: dict[RequestState, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        """Lines that the tables must have."""
        return len(self._slots) + len(self._free)

    def __getitem__(self, request: RequestState) -> int:
        return self._slots[request]

    def arrange(self, requests: Iterable[RequestState]) -> list[RequestState]:
        """Let these requests have slots, and no others. The newcomers among them."""
        present = dict.fromkeys(requests)
        for gone in [request for request in self._slots if request not in present]:
            self._free.append(self._slots.pop(gone))
        newcomers = [request for request in present if request not in self._slots]
        for request in newcomers:
            self._slots[request] = self._free.pop() if self._free else len(self._slots)
        return newcomers


def grow_lines(table: Tensor, num_lines: int) -> Tensor:
    """``table`` with at least ``num_lines`` lines: itself, or a larger copy whose new lines hold anything."""
    if len(table) >= num_lines:
        return table
    larger = table.new_empty((max(num_lines, 2 * len(table)), table.shape[1]))
    larger[: len(table)] = table
    return larger
