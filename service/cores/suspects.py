"""Which requests a core may have died of, and how the others get past them. Pure: no IO.

A request that kills its core kills the next one too, and every other request would be resubmitted beside it until
nobody starts cores any more. What tells it from its neighbours is that it gets nothing: who has had a token from the
core since it was sent there is not what ended it.

    strikes   cores in a row that ended with the request, and had given it nothing
    0, 1      it goes to the next core at once: many were just about to begin
    2         on trial: one goes to the core, when it has got something two, then four …
    3 and up  on trial alone

Who has four and is the only one that got nothing ends with the core.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence

from service.admission.live_call import LiveCall

STRIKES_OF_SUSPECTS = 2
STRIKES_OF_THE_GUILTY = 4
TRIAL_TIMEOUT_S = 10.0
"""A trial does not take longer: what waits for a place in the core gets nothing, and is not to blame."""


class Suspects:
    """Owned by the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._on_trial: list[LiveCall] = []
        self._group_size = 1
        self._ends_at = -math.inf

    def judge(self, calls: Sequence[LiveCall]) -> LiveCall | None:
        """A core has ended that had ``calls``. The one that is to blame, if there is no doubt."""
        accused = []
        for call in calls:
            call.num_strikes = 0 if call.has_progressed else call.num_strikes + 1
            if call.num_strikes:
                accused.append(call)
        self._on_trial, self._group_size = [], 1
        if len(accused) == 1 and accused[0].num_strikes >= STRIKES_OF_THE_GUILTY:
            return accused[0]
        return None

    def admitted(self, waiting: Iterable[LiveCall]) -> list[LiveCall]:
        """Who of ``waiting`` may go to a core now: whoever is not suspected, before the next to be on trial."""
        waiting = list(waiting)
        suspects = sorted((call for call in waiting if is_suspect(call)), key=lambda call: call.num_strikes)
        return [call for call in waiting if not is_suspect(call)] + self._next_on_trial(suspects)

    def has_more(self, waiting: Iterable[LiveCall]) -> bool:
        """Whether somebody waits to be on trial, which needs others to have got something first."""
        return bool(self._on_trial) and any(is_suspect(call) for call in waiting)

    def _next_on_trial(self, suspects: list[LiveCall]) -> list[LiveCall]:
        if not suspects or not self._is_over:
            return []
        if any(not call.has_progressed for call in self._on_trial):
            self._group_size = 1
        size = self._group_size if suspects[0].num_strikes == STRIKES_OF_SUSPECTS else 1
        self._on_trial = [call for call in suspects[:size] if call.num_strikes == suspects[0].num_strikes]
        self._group_size *= 2
        self._ends_at = self._clock() + TRIAL_TIMEOUT_S
        return self._on_trial

    @property
    def _is_over(self) -> bool:
        return self._clock() >= self._ends_at or all(call.has_progressed for call in self._on_trial)


def is_suspect(call: LiveCall) -> bool:
    return call.num_strikes >= STRIKES_OF_SUSPECTS
