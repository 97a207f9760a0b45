"""CPU time of a process on this machine."""

import psutil


class ProcessCpu:
    """Counts from its making. Raises psutil.NoSuchProcess when ``pid`` is not there."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._start_s = self._total_s()

    def used_s(self) -> float:
        """User and system time so far, in seconds; children are not included."""
        return self._total_s() - self._start_s

    def _total_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)
