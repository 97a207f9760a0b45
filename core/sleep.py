"""Sleep: an idle engine gives its memory back, and takes it again when it is woken.

    level 0   a pause, nothing more
    level 1   the caches are cleared; weights and KV cache are dropped
    level 2   as 1, for callers who will want other weights when they wake it

Both drop the weights: the files that they are read from again are in the system's page cache, and a copy beside it
would take the very memory that sleep is to free. Requests that come meanwhile wait.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Literal

from core.executor.interface import MEMORY_PARTS, Executor
from core.pause_state import PauseMode
from core.pauses import Pauses
from core.scheduler import Scheduler

MAX_SLEEP_LEVEL = 2
WakeTag = Literal["weights", "kv_cache", "scheduling"]


class Sleep:
    """Puts scheduler and executor to sleep and wakes them. Owned by the busy loop."""

    def __init__(self, scheduler: Scheduler, executor: Executor, pauses: Pauses) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._pauses = pauses

    @property
    def is_asleep(self) -> bool:
        """Whether the executor is without some of its memory, so that no step can run."""
        return bool(self._executor.asleep_parts)

    def sleep(self, level: int, mode: PauseMode) -> "Future[None]":
        """Pause as ``mode`` says, then sleep. Raises ValueError for a level outside [0, 2]."""
        if not 0 <= level <= MAX_SLEEP_LEVEL:
            raise ValueError(f"level must be in [0, {MAX_SLEEP_LEVEL}], got {level}")
        return self._pauses.pause(mode, self._fall_asleep if level else _do_nothing)

    def wake_up(self, tags: Sequence[WakeTag] | None) -> None:
        """Take back what ``tags`` name, None = everything; schedule again once nothing is asleep any more.

        Raises what the executor raises when the memory or the files are gone: it sleeps on, and can be woken again.
        """
        self._executor.wake_up([part for part in MEMORY_PARTS if tags is None or part in tags])
        if not self.is_asleep:
            self._pauses.resume()

    def check_awake(self) -> None:
        """Raise RuntimeError while no step could run."""
        if self.is_asleep:
            raise RuntimeError(f"the engine is asleep ({', '.join(sorted(self._executor.asleep_parts))}): wake it up")

    def _fall_asleep(self) -> None:
        # What is in the KV cache is lost: nobody may find it there, or go on from it.
        self._scheduler.reset_prefix_cache(reset_running_requests=True)
        self._executor.sleep()


def _do_nothing() -> None:
    pass
