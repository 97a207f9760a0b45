"""Calls that no core has: each goes to one as soon as it can, unless its time is up before."""

import asyncio
from collections.abc import Callable, Iterator

from service.admission.live_call import LiveCall


class WaitingCalls:
    """In the order in which they came. Owned by the event loop."""

    def __init__(self) -> None:
        self._timers: dict[LiveCall, asyncio.TimerHandle | None] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def __iter__(self) -> Iterator[LiveCall]:
        return iter(list(self._timers))

    def __contains__(self, call: object) -> bool:
        return call in self._timers

    def add(self, call: LiveCall) -> None:
        """``call`` waits however long it takes. Nothing if it waits already."""
        self._timers.setdefault(call, None)

    def add_for(self, seconds: float, call: LiveCall, give_up: Callable[[LiveCall], None]) -> None:
        """As ``add``, but after ``seconds`` ``give_up`` is called, and ``call`` waits no more."""
        self._timers[call] = asyncio.get_running_loop().call_later(seconds, self._expire, call, give_up)

    def discard(self, call: LiveCall) -> None:
        """``call`` waits no more, if it did."""
        if (timer := self._timers.pop(call, None)) is not None:
            timer.cancel()

    def _expire(self, call: LiveCall, give_up: Callable[[LiveCall], None]) -> None:
        self.discard(call)
        give_up(call)
