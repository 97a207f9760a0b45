"""The busy loop of a rank that steps in lockstep with the others.

    input_queue ─▶ requests, pauses, START ─▶ ┌──────────────────────────────┐
                                              │ a step, or a dummy batch     │─▶ output_queue: front ends,
    the other ranks ◀── every 32nd step ─────▶│ agree: is anybody busy?      │   coordinator (start_wave,
                                              └──────────────────────────────┘   wave_complete)

Everything runs on the main thread, which waits in ``RankGroup`` for the other ranks and nowhere else while it runs.
"""

import logging
from typing import Any, NamedTuple

from core.busy_loop import BusyLoop
from core.data_parallel.load_report import LoadReport
from core.data_parallel.rank_group import RankGroup, RankGroupError
from core.data_parallel.waves import EngineWave, Votes
from core.engine_interface import Engine, Lockstep
from core.intake import AddedRequest, InputQueue, OutputQueue
from core.shutdown import Shutdown
from core.wire.messages import EngineCoreOutputs, RequestType
from core.wire.waves import COORDINATOR_CLIENT_INDEX

logger = logging.getLogger(__name__)

LEAVE_GRACE_S = 5.0
"""How long after its time a rank still steps with others that were not told to go down; shorter than the cleanup's."""


class Group(NamedTuple):
    """The engine's part in lockstep, and its place among the ranks."""

    lockstep: Lockstep
    ranks: RankGroup
    wave: EngineWave
    has_coordinator: bool


class LockstepLoop(BusyLoop):
    """A BusyLoop that runs while any rank does.

    ``run`` raises RankGroupError if a rank is gone, unless this one is to end, too.
    """

    def __init__(
        self,
        engine: Engine,
        group: Group,
        input_queue: InputQueue,
        output_queue: OutputQueue,
        shutdown: Shutdown,
        load_report: LoadReport | None = None,
    ) -> None:
        super().__init__(engine, input_queue, output_queue, shutdown, load_report)
        self._lockstep, self._ranks, self._wave, self._has_coordinator = group

    def finish(self) -> None:
        """As ``BusyLoop.finish``; and whoever waits for a pause hears that this rank is idle."""
        super().finish()
        if self._lockstep.awaits_pause:
            self._engine.step()

    def _goes_on(self) -> bool:
        is_needed = self._is_stepping() and not self._shutdown.is_overdue_by(LEAVE_GRACE_S)
        return self._has_own_work() or is_needed

    def _has_work(self) -> bool:
        return self._is_stepping() or super()._has_work()

    def _is_stepping(self) -> bool:
        # The model is not there while the engine sleeps: the others wait until it is woken.
        return self._wave.is_running and not self._lockstep.is_asleep

    def _has_own_work(self) -> bool:
        """Whether there is more to do here than to wait until all ranks are idle."""
        return super()._has_work() and not self._lockstep.awaits_pause

    def _dispatch(self, request_type: RequestType, payload: Any) -> None:
        if request_type is RequestType.START_DP_WAVE:
            self._wave.take_start(payload.wave)
        else:
            super()._dispatch(request_type, payload)

    def _add(self, added: AddedRequest) -> bool:
        is_added = super()._add(added)
        if is_added:
            self._wave.take_request(added.wave)
        return is_added

    def _process_engine_step(self) -> None:
        if self._lockstep.is_asleep:
            super()._process_engine_step()  # Runs nothing: it answers those who wait.
            return
        if super()._has_work():
            self._wake_others()
        if self._wave.is_running:
            self._step_in_lockstep()

    def _wake_others(self) -> None:
        wave = self._wave.begin_own_work()
        if wave is not None and self._has_coordinator:
            self._reply(COORDINATOR_CLIENT_INDEX, EngineCoreOutputs(start_wave=wave))

    def _step_in_lockstep(self) -> None:
        if not (self._has_own_work() and self._step()):
            self._lockstep.execute_dummy_batch()
        if self._wave.end_step():
            self._agree()

    def _send(self, outputs: dict[int, EngineCoreOutputs]) -> None:
        for message in outputs.values():
            if (stats := message.scheduler_stats) is not None:
                stats.step_counter, stats.current_wave = self._wave.step, self._wave.number
        super()._send(outputs)

    def _agree(self) -> None:
        is_busy = self._has_own_work()
        awaits_pause = self._lockstep.awaits_pause and not self._shutdown.requested
        votes = self._wave.vote(is_busy, awaits_pause, self._lockstep.is_paused and not is_busy)
        try:
            agreed = Votes(*self._ranks.all_reduce_max(votes))
        except RankGroupError as error:
            self._take_waiting_input()  # The front end may be gone, which the others have heard a moment earlier.
            if not self._is_ending:
                raise
            self._go_alone(error)
            return
        complete = self._wave.settle(agreed)
        if not agreed.is_not_idle and super()._has_work():
            self._step()  # Answers the pauses.
        if complete is not None:
            self._report_complete(complete)

    def _go_alone(self, error: RankGroupError) -> None:
        """The others went down a moment earlier. What this rank would still run, it cannot."""
        logger.info("leaving the group: %s", error)
        self._abort_all()
        self._wave.is_running = False

    def _report_complete(self, wave: int) -> None:
        if not self._has_coordinator:
            self._reply(0, EngineCoreOutputs(wave_complete=wave))
        elif self._ranks.rank == 0:
            self._reply(COORDINATOR_CLIENT_INDEX, EngineCoreOutputs(wave_complete=wave))
