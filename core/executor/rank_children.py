"""The rank processes of this host, children of whoever starts them.

They are in sessions of their own, so that Ctrl-C at the terminal is their parent's to handle, and heed neither SIGINT
nor SIGTERM: they end when their channel does, and by force when their parent is gone.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from core.logs import logging_flags

RANK_MODULE = "core.executor.rank_process"


class RankChildren:
    """Those started so far, by rank. ``module`` is what they run."""

    def __init__(self, model: Path, module: str = RANK_MODULE) -> None:
        self._model, self._module = model, module
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._pid_fds: dict[int, int] = {}

    @property
    def pids(self) -> dict[int, int]:
        return {rank: process.pid for rank, process in self._processes.items()}

    def start(self, rank: int, flags: Sequence[str], inherited_fds: Sequence[int] = ()) -> None:
        """``flags`` say how it reaches its core. Raises OSError if it cannot start."""
        # A folder named core where the user is must not be taken for our package, if it was not for this process.
        python = [sys.executable, *(["-P"] if sys.flags.safe_path else [])]
        process = subprocess.Popen(
            [*python, "-m", self._module, str(self._model), "--rank", str(rank), *flags, *logging_flags()],
            stdin=subprocess.DEVNULL,
            pass_fds=inherited_fds,
            start_new_session=True,
        )
        self._processes[rank] = process
        self._pid_fds[rank] = os.pidfd_open(process.pid)

    def first_end(self, timeout_s: float | None) -> int | None:
        """The rank of one that has ended; None if none does in time."""
        poll = select.poll()
        ranks = {pid_fd: rank for rank, pid_fd in self._pid_fds.items()}
        for pid_fd in ranks:
            poll.register(pid_fd, select.POLLIN)
        found = poll.poll(None if timeout_s is None else timeout_s * 1000)
        return ranks[found[0][0]] if found else None

    def describe_end(self, rank: int, timeout_s: float) -> str:
        """How the process of ``rank`` ended; empty if it has not in time, or is of another host."""
        if rank not in self._processes:
            return ""
        try:
            code = self._processes[rank].wait(timeout_s)
        except subprocess.TimeoutExpired:
            return ""
        return f"exit code {code}" if code >= 0 else f"signal {-code} ({signal.strsignal(-code)})"

    def join(self, timeout_s: float) -> list[int]:
        """The exit codes, once all have ended: by themselves, or after ``timeout_s`` by force. May be called twice."""
        deadline = time.monotonic() + timeout_s
        for process in self._processes.values():
            try:
                process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        while self._pid_fds:
            os.close(self._pid_fds.popitem()[1])
        return [process.returncode for process in self._processes.values()]

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()
