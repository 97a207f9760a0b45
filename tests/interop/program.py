"""A program that someone else wrote, as a child process.

    child's stdout + stderr ──pipe──▶ reader thread ──▶ log

It leads a process group of its own, so that whatever it starts, and does not end, can be ended with it.
"""

import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

PATIENCE_S = 120.0
"""How long a test waits for what must come: far longer than it takes on a loaded machine."""
_POLL_S = 0.1


class Program:
    """Runs ``command``; leaving the ``with`` block kills its whole process group.

    ``environment`` adds to this process's own.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.command = [str(word) for word in command]
        self._lines: list[str] = []
        self._logged = threading.Condition()
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **(environment or {})},
            pass_fds=pass_fds,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="program-log", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return "".join(self._lines)

    def wait_for_log(self, pattern: str, timeout_s: float = PATIENCE_S) -> re.Match[str]:
        """The first match in the log, as soon as it is there."""
        with self._logged:
            found = self._logged.wait_for(lambda: re.search(pattern, self.log) or self._has_ended(), timeout_s)
            match = re.search(pattern, self.log)
        assert match, f"{self.command} {'ended' if found else 'ran on'} without {pattern!r} in its log:\n{self.log}"
        return match

    def wait_until_served(self, url: str, timeout_s: float = PATIENCE_S) -> None:
        """Return when ``url`` answers 200."""
        deadline = time.monotonic() + timeout_s
        while not _is_served(url):
            assert not self._has_ended(), f"{self.command} ended with {self._process.wait()}:\n{self.log}"
            assert time.monotonic() < deadline, f"{self.command} does not serve {url}:\n{self.log}"
            time.sleep(_POLL_S)

    def descendants(self) -> list[psutil.Process]:
        """Its children and theirs."""
        return psutil.Process(self.pid).children(recursive=True)

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """The exit code."""
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """Kills the group and reaps the child; harmless when all is over."""
        for process in [*self._children_alive(), self.pid]:
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
        self._process.wait()
        self._reader.join()

    def _children_alive(self) -> list[int]:
        """Those that lead a group of their own."""
        with suppress(psutil.NoSuchProcess):
            return [child.pid for child in self.descendants() if os.getpgid(child.pid) == child.pid]
        return []

    def _has_ended(self) -> bool:
        return self._process.poll() is not None

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                with self._logged:
                    self._lines.append(line)
                    self._logged.notify_all()
        with self._logged:
            self._logged.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.kill()


def free_port() -> int:
    """A TCP port that nobody listens at. For programs that cannot be told to choose one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_served(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
