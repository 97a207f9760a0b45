"""What operators do to the engine: pause it, put it to sleep, profile it. And what that means for readiness.

Paused, the server is ready: requests queue, and nobody need go elsewhere for a moment. Asleep it is not, because the
way back takes as long as a load; yet calls are let in, and wait until it is awake.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.cores.utility_calls import UtilityError
from service.errors import FailedPrecondition, Unavailable
from service.gate import Gate
from service.to_the_end import ToTheEnd


@dataclass
class EngineState:
    """What it was told last. ``sleep_level`` 0: awake; paused it may be even so."""

    sleep_level: int = 0
    is_paused: bool = False


class EngineControl:
    """Calls on the core behind ``gate``.

    Each raises FailedPrecondition, with the core's message, if the core refuses or fails, Unavailable without a core.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._work = ToTheEnd()
        self._num_sleeps = 0
        self.state = EngineState()

    async def call(self, method: str, *args: Any) -> Any:
        """The result of a utility call."""
        try:
            return await self._gate.look_in().engine.call_utility(method, *args)
        except UtilityError as error:
            raise FailedPrecondition(str(error)) from error

    async def pause(self, mode: str, clear_cache: bool) -> None:
        """Schedule no more. Ready all the same."""
        await self.call("pause_scheduler", mode, clear_cache)
        self.state.is_paused = True

    async def resume(self) -> None:
        """Schedule again, which the core refuses while it is asleep: ready from now on."""
        await self._work.run(self._resume())

    async def sleep(self, level: int, mode: str) -> None:
        """Pause and, from level 1 on, give the memory back: not ready from now on."""
        await self._work.run(self._sleep(level, mode))

    async def wake_up(self, tags: Sequence[str]) -> None:
        """Take back the memory of ``tags``, none = all: ready again once nothing is asleep."""
        await self._work.run(self._wake_up(tags))

    async def _sleep(self, level: int, mode: str) -> None:
        if level == 0:
            await self.call("sleep", level, mode)
            self.state.is_paused = True
            return
        self._gate.look_in()
        self._num_sleeps += 1
        self._gate.set_asleep(True)
        try:
            await self.call("sleep", level, mode)
        except FailedPrecondition:
            await self._ask_whether_asleep()
            raise
        except Unavailable:
            self._note_asleep(False, self._num_sleeps)  # A core that comes in the place of the lost one is awake.
            raise
        self.state.sleep_level, self.state.is_paused = level, True

    async def _wake_up(self, tags: Sequence[str]) -> None:
        await self.call("wake_up", list(tags) or None)
        await self._ask_whether_asleep()

    async def _resume(self) -> None:
        # "is_sleeping" is true of a pause as well: a wake-up during one left the gate asleep.
        num_sleeps = self._num_sleeps
        await self.call("resume_scheduler")
        self._note_asleep(False, num_sleeps)

    async def _ask_whether_asleep(self) -> None:
        num_sleeps = self._num_sleeps
        self._note_asleep(await self.call("is_sleeping"), num_sleeps)

    def _note_asleep(self, asleep: bool, num_sleeps: int) -> None:
        """Unless another sleep has begun since there were ``num_sleeps``: the answer is of before it."""
        if num_sleeps == self._num_sleeps:
            self._gate.set_asleep(asleep)
            if not asleep:
                self.state.sleep_level, self.state.is_paused = 0, False
