"""Calls that have no core: those whose core is gone, and new ones that come while there is none.

    core r is gone ──▶ its calls wait ──▶ another rank, or the core that comes in its place: each goes on where it was
    a new call, and no core is there ──▶ it waits for a while ──▶ as above

What may be what the cores died of is tried by and by: see ``Suspects``.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from service.admission.live_call import LiveCall
from service.admission.waiting_calls import WaitingCalls
from service.cores.engine import Engine, max_num_tokens, why_unavailable
from service.cores.engines import Engines
from service.cores.placement import Placement
from service.cores.resume import NotResumableError
from service.cores.suspects import TRIAL_TIMEOUT_S, Suspects
from service.errors import Internal, Unavailable

logger = logging.getLogger(__name__)


class Resumption:
    """Owned by the event loop. ``restart_wait_s``: how long new calls wait."""

    def __init__(self, engines: Engines, placement: Placement, restart_wait_s: float) -> None:
        self.num_resumed = 0
        """Requests that have gone on in another core than the one that had them first."""
        self.num_lost = 0
        """Requests that ended with their core, though others could go on."""
        self.on_resumed: Callable[[LiveCall], None] = lambda _: None
        """Told of a call that goes on in another core."""
        self.has_trial = False
        """Whether somebody waits for others to be given something: ``place`` is to be called when they are."""
        self._engines = engines
        self._placement = placement
        self._restart_wait_s = restart_wait_s
        self._waiting = WaitingCalls()
        self._suspects = Suspects()
        self._trial_timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Calls that wait."""
        return len(self._waiting)

    def begin(self, call: LiveCall) -> None:
        """Submit a new call, or let it wait. Raises Unavailable if there is nobody to wait for."""
        request = call.requests[0].request
        engine = self._placement.choose(request)
        if engine is not None:
            try:
                self._placement.submit(call, engine)
            except Unavailable:  # It has just gone, which will be noticed in a moment.
                if not self._engines.awaits_successors:
                    raise
            else:
                return
        if self._restart_wait_s <= 0:
            raise why_unavailable(self._placement.candidates(request))
        self._waiting.add_for(self._restart_wait_s, call, self._refuse_to_wait)

    def end(self, call: LiveCall) -> None:
        """Its client wants no more of it."""
        self._waiting.discard(call)

    def lose(self, engine: Engine, calls: Sequence[LiveCall]) -> None:
        """``engine`` is gone, which had ``calls``; another is awaited in its place."""
        lost = [call for call in calls if call not in self._waiting]
        guilty = self._suspects.judge(lost)
        if lost:
            logger.warning("rank %d is gone: its %d calls are to go on elsewhere", engine.rank, len(lost))
        for call in lost:
            self._placement.withdraw(call)
            self._waiting.add(call)
        if guilty is not None:
            self._convict(guilty)
        self.place()

    def give_up(self, calls: Sequence[LiveCall], error: Unavailable) -> None:
        """A core is gone for good: ``calls``, which it had, end, and those that wait for nobody else."""
        for call in [*calls, *self._waiting]:
            if call not in self._waiting or self._is_hopeless(call):
                self._drop(call, error)

    def place(self) -> None:
        """Send what waits to the cores that are there: what had begun before what is new."""
        if not self._engines.are_serving:
            return
        in_turn = sorted(self._waiting, key=lambda call: not call.num_submissions)
        for call in self._suspects.admitted(in_turn):
            self._place(call)
        self.has_trial = self._suspects.has_more(self._waiting)
        if self.has_trial and self._trial_timer is None:
            self._trial_timer = asyncio.get_running_loop().call_later(TRIAL_TIMEOUT_S, self._end_trial)

    def fail(self, call: LiveCall, why: str) -> None:
        """No core can go on with ``call``."""
        extra = {"request_id": call.name}
        logger.warning("request %s could not go on in another core: %s", call.name, why, extra=extra)
        self.num_lost += len(call.stream.unfinished)
        self._drop(call, Unavailable(f"the engine core is gone, and another cannot go on: {why}", reason="CORE_LOST"))

    def _place(self, call: LiveCall) -> None:
        """``call`` waits on if no core takes it."""
        was_submitted = call.num_submissions > 0
        try:
            engine = self._placement.choose(call.requests[0].request)
            if engine is None:
                return
            _check_room(call, engine)
            self._placement.submit(call, engine)
        except Unavailable:
            return
        except NotResumableError as error:
            self.fail(call, str(error))
        else:
            self._waiting.discard(call)
            if was_submitted:
                self.num_resumed += len(call.stream.unfinished)
                self.on_resumed(call)

    def _end_trial(self) -> None:
        self._trial_timer = None
        self.place()

    def _convict(self, call: LiveCall) -> None:
        text, extra = "request %s is ended: %d cores have ended while they began it", {"request_id": call.name}
        logger.error(text, call.name, call.num_strikes, extra=extra)
        self.num_lost += len(call.stream.unfinished)
        cause = f"{call.num_strikes} cores ended while they had it, and had given it nothing"
        self._drop(call, Internal("the engine core does not survive the request", reason="ENDS_THE_CORE", cause=cause))

    def _drop(self, call: LiveCall, error: Exception) -> None:
        self._waiting.discard(call)
        call.stream.fail(error)

    def _refuse_to_wait(self, call: LiveCall) -> None:
        """A new call has waited as long as new calls may."""
        call.stream.fail(why_unavailable(self._placement.candidates(call.requests[0].request)))

    def _is_hopeless(self, call: LiveCall) -> bool:
        """No core that may have it is there, nor is to come."""
        candidates = self._placement.candidates(call.requests[0].request)
        return all(engine.is_gone_for_good for engine in candidates)


def _check_room(call: LiveCall, engine: Engine) -> None:
    """Raises NotResumableError: a core that could go on would end it at once, or has no place for its prompt."""
    assert engine.response is not None, "it takes requests"
    if call.num_submissions and call.num_tokens >= (bound := max_num_tokens(engine.response)):
        raise NotResumableError(f"its {call.num_tokens} tokens are too many for a core with room for {bound}")
