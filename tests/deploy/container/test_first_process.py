"""SIGTERM to process 1 of a container while it starts. No image: a namespace of processes is enough."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.toolchain import require

pytestmark = pytest.mark.container

ROOT = Path(__file__).parents[3]
_WAITS = """
import signal
from core.wire.first_process import end_at_sigterm
end_at_sigterm()
print("waits", flush=True)
signal.pause()
"""


@contextmanager
def as_first_process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """``python ARGUMENTS`` as process 1 of a namespace, below the process that is yielded and ends as it does."""
    require("unshare")
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def terminate_first_process(process: subprocess.Popen[str]) -> None:
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)


def test_sigterm_before_there_is_a_handler() -> None:
    """It ends the process, by the exit code of that signal, where the kernel alone would withhold it."""
    with as_first_process("-c", _WAITS) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        terminate_first_process(process)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
