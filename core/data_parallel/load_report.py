"""What an engine tells the coordinator of its load."""

import time
from collections.abc import Callable

from core.data_parallel.waves import EngineWave
from core.intake import OutputQueue
from core.wire.messages import EngineCoreOutputs
from core.wire.stats import SchedulerStats
from core.wire.waves import COORDINATOR_CLIENT_INDEX

RequestCounts = Callable[[], tuple[int, int]]
"""How many requests wait, and how many run."""


class LoadReport:
    """Says so whenever the counts have changed. Used by the busy loop before and after each step."""

    def __init__(self, request_counts: RequestCounts, wave: EngineWave, output_queue: OutputQueue) -> None:
        self._request_counts = request_counts
        self._wave = wave
        self._output_queue = output_queue
        self._reported: tuple[int, int] | None = None

    def send_if_changed(self) -> None:
        counts = self._request_counts()
        if counts == self._reported:
            return
        self._reported = num_waiting, num_running = counts
        stats = SchedulerStats(num_running, num_waiting, step_counter=self._wave.step, current_wave=self._wave.number)
        message = EngineCoreOutputs(scheduler_stats=stats, timestamp=time.monotonic())
        self._output_queue.put((COORDINATOR_CLIENT_INDEX, message))
