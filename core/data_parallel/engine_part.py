"""EngineCore's part in lockstep with other ranks."""

from core.executor.interface import Executor
from core.scheduler import Scheduler
from core.utilities import Utilities


class LockstepPart:
    """Fulfils ``core.engine_interface.Lockstep``."""

    def __init__(self, scheduler: Scheduler, executor: Executor, utilities: Utilities) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._utilities = utilities

    @property
    def is_paused(self) -> bool:
        return self._scheduler.is_paused

    @property
    def awaits_pause(self) -> bool:
        return self._utilities.is_pausing and not self._scheduler.has_work()

    @property
    def is_asleep(self) -> bool:
        return bool(self._executor.asleep_parts)

    def execute_dummy_batch(self) -> None:
        self._utilities.execute_dummy_batch()
