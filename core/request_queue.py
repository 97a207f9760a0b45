"""The order among requests: who runs first, and who gives way first."""

import bisect
from collections.abc import Callable, Iterator
from typing import Any

from core.config import SchedulingPolicy
from core.request import Request


def _by_arrival(request: Request) -> int:
    return request.arrival_number


def _by_priority(request: Request) -> tuple[int, float, str]:
    """Of equals the front end's clock decides, which says the same after a restart; at last the id."""
    return request.priority, request.arrival_time, request.request_id


_KEYS: dict[SchedulingPolicy, Callable[[Request], Any]] = {"fcfs": _by_arrival, "priority": _by_priority}


class RequestQueue:
    """Live requests, always sorted: the first is the next to run, the last is the first to give way.

    No two keys are equal, so a request that comes back is where it was, and is found without a search through all.
    """

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._key = _KEYS[policy]
        self._requests: list[Request] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __getitem__(self, position: int) -> Request:
        return self._requests[position]

    def before(self, request: Request) -> list[Request]:
        """Those that come before ``request``, which may be elsewhere."""
        return self._requests[: bisect.bisect_left(self._requests, self._key(request), key=self._key)]

    def add(self, request: Request) -> None:
        bisect.insort(self._requests, request, key=self._key)

    def remove(self, request: Request) -> None:
        position = bisect.bisect_left(self._requests, self._key(request), key=self._key)
        assert self._requests[position] is request, f"{request} is not here"
        del self._requests[position]

    def pop_last(self) -> Request:
        return self._requests.pop()
