"""The trial process as the grammar thread sees it."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from core.structured_output.form import Form, FormError
from core.structured_output.verdict import MAX_CPU_S, Verdict

TIMEOUT_S = 60.0
"""By the clock, for a process that somebody has stopped: far more than ``MAX_CPU_S`` takes on a busy machine."""

_SOMEBODY_ELSES = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
"""It heeds the last two only until it is ready."""


class TrialProcess:
    """Started when it is needed. All but ``end`` is for one thread at a time."""

    def __init__(self, folder: Path, vocab_size: int, timeout_s: float = TIMEOUT_S) -> None:
        self._command = [sys.executable, "-P", "-m", "core.structured_output.trial", str(folder), str(vocab_size)]
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._exit_code = 0
        """Of the last one that died."""
        self._is_closed = False

    def start(self) -> None:
        """Let it read its vocabulary meanwhile, if it does not run yet."""
        self._running()

    def write_grammar(self, form: Form) -> str:
        """``form`` for llguidance, known to compile within the limits. Raises FormError."""
        answer = self._try(form)
        if not answer and -self._exit_code in _SOMEBODY_ELSES and not self._is_closed:
            # No limit ends it so, but, say, want of memory. That is not held against the form, once.
            answer = self._try(form)
        if not answer:
            raise FormError(self._why_died())
        verdict = msgspec.json.decode(answer, type=Verdict)
        if verdict.grammar is None:
            raise FormError(verdict.fault)
        return verdict.grammar

    def end(self) -> None:
        """Later trials fail, and so does the one that is going on. From any thread."""
        self._is_closed = True
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """When no trial is going on any more: leave nothing behind."""
        self.end()
        if self._process is not None:
            self._reap(self._process)

    def _try(self, form: Form) -> bytes:
        """What the process says to it; nothing if it dies, or is stopped."""
        process = self._running()
        assert process.stdin is not None, "a pipe"
        assert process.stdout is not None, "a pipe"
        answer = b""
        with contextlib.suppress(BrokenPipeError), _killed_after(process, self._timeout_s):
            process.stdin.write(msgspec.json.encode(form) + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        if not answer:
            self._reap(process)
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._reap(self._process)  # It died with nothing to do: no form is to blame.
        if self._process is None:
            # Our modules are where they are for this process, which may be the folder that it was started from.
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
        if self._is_closed:
            self._process.kill()
        return self._process

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        """So that the next form gets a new one."""
        self._process = None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._exit_code = process.wait()

    def _why_died(self) -> str:
        if self._is_closed:
            return "the engine shuts down"
        if self._exit_code == -signal.SIGPROF:
            return f"takes more than {MAX_CPU_S:g} s to compile"
        return "is nested too deeply, or too large, to compile"


@contextlib.contextmanager
def _killed_after(process: subprocess.Popen[bytes], timeout_s: float) -> Iterator[None]:
    timer = threading.Timer(timeout_s, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
