"""The trial process as the grammar thread sees it."""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from core.structured_output.form import Form, FormError
from core.structured_output.verdict import MAX_CPU_S, Verdict


class TrialProcess:
    """Started when it is needed. ``close`` may come from any thread, and ends a trial that is going on."""

    def __init__(self, folder: Path, vocab_size: int) -> None:
        self._command = [sys.executable, "-P", "-m", "core.structured_output.trial", str(folder), str(vocab_size)]
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def start(self) -> None:
        """Let it read its vocabulary meanwhile, if it does not run yet."""
        self._running()

    def write_grammar(self, form: Form) -> str:
        """``form`` for llguidance, known to compile within the limits. Raises FormError."""
        process = self._running()
        answer = b""
        with contextlib.suppress(BrokenPipeError):  # It has died meanwhile: there is no answer.
            assert process.stdin is not None, "a pipe"
            assert process.stdout is not None, "a pipe"
            process.stdin.write(msgspec.json.encode(form) + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        if not answer:
            raise FormError(self._why_died(process))
        verdict = msgspec.json.decode(answer, type=Verdict)
        if verdict.grammar is None:
            raise FormError(verdict.fault)
        return verdict.grammar

    def close(self) -> None:
        """End it. Later trials fail."""
        self._is_closed = True
        if self._process is not None:
            self._process.kill()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self._is_closed:
            self._process.kill()
        return self._process

    def _why_died(self, process: subprocess.Popen[bytes]) -> str:
        """Reap it, so that the next form gets a new one."""
        self._process = None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        signal_number = -process.wait()
        if self._is_closed:
            return "the engine shuts down"
        if signal_number == signal.SIGPROF:
            return f"takes more than {MAX_CPU_S:g} s to compile"
        return "is nested too deeply, or too large, to compile"
