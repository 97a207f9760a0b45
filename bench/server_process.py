"""`sluicegate serve` as a child process.

    child's stdout + stderr ──pipe──▶ reader thread ──▶ the log, and the ready line ──events──▶ wait_until_ready()

The child has a process group of its own: Ctrl-C in the terminal is for this process to pass on, and whatever the child
leaves behind can be ended with it.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Self

SLUICEGATE = (sys.executable, "-P", "-m", "service")

_EXIT_GRACE_S = 10.0
_READY = re.compile(r"ready grpc=(?P<addresses>\S+) model=.+ seconds=[\d.]+")


class ServerError(Exception):
    """The server did not do what it was asked to; the message ends with its log."""


class ServerProcess:
    """Runs ``sluicegate ARGUMENTS``; leaving the ``with`` block kills it if it still lives.

    ``on_ready_line`` is given the log line that says where it serves; ``environment`` adds to this process's own.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        on_ready_line: Callable[[str], None] = lambda _: None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._on_ready_line = on_ready_line
        self._lines: list[str] = []
        self._ready_or_ended = threading.Event()
        self._address: str | None = None
        self._process = subprocess.Popen(
            [*SLUICEGATE, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="server-log", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return "".join(self._lines)

    def wait_until_ready(self, timeout_s: float) -> str:
        """Returns the first gRPC address. Raises ServerError when it ends or stays silent instead."""
        in_time = self._ready_or_ended.wait(timeout_s)
        if self._address is None:
            what = "ended before it was ready" if in_time else f"was not ready within {timeout_s:g} s"
            raise self._error(what)
        return self._address

    def terminate(self, timeout_s: float) -> None:
        """SIGTERM: drains and ends. Raises ServerError for another exit code than 0, or none in time."""
        self._process.terminate()
        try:
            exit_code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self._error(f"had not ended {timeout_s:g} s after SIGTERM") from None
        if exit_code != 0:
            raise self._error(f"ended with exit code {exit_code}")

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        """Returns the exit code. Raises subprocess.TimeoutExpired."""
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """Kills the whole group and reaps the child; harmless when all is over."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._lines.append(line)
                if self._address is None and (ready := _READY.search(line)):
                    self._address = ready["addresses"].split(",")[0]
                    self._on_ready_line(line.rstrip())
                    self._ready_or_ended.set()
        self._ready_or_ended.set()

    def _error(self, what: str) -> ServerError:
        return ServerError(f"the server {what}; its log:\n{self.log}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        """A server that still runs is asked to end first, so that it removes its sockets."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_GRACE_S)
        self.kill()
