"""The standard error of a core, passed on and understood."""

import asyncio
import os
import sys

import pytest

from service.cores.core_log import CoreLog

ERROR = "2026-11-29T22:02:36.765Z ERROR core.process: exiting: dtype must be a or b"


def log_of(*pieces: bytes) -> CoreLog:
    """All that a process wrote before it ended."""
    log = CoreLog()
    for piece in pieces:
        os.write(log.write_end, piece)
    log.hand_over()
    log.close()
    return log


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (ERROR, "dtype must be a or b"),
        ('{"level": "ERROR", "logger": "core.process", "message": "exiting: no\\nline"}', "no line"),
        ("Usage: sluicegate-core\n\nError: Invalid value for '--x': 5", "Invalid value for '--x': 5"),
        (f"Error: {600 * 'x'}", 500 * "x"),
        (ERROR.replace("ERROR", "INFO"), ""),
        ('{"level": "INFO", "logger": "core.process", "message": "fine"}', ""),
        ('{"level": "ERROR"}', ""),
        ("[1, 2]", ""),
        ("\u001b[31mSegmentation fault\u001b[0m", ""),
        ("", ""),
    ],
)
async def test_error(line: str, error: str) -> None:
    """The last line says why the core ended, in whatever form it logs; what is no error says nothing."""
    assert log_of(b"first\n", line.encode() + b"\n\n").error == error


async def test_lines_are_passed_on_whole(capfd: pytest.CaptureFixture[str]) -> None:
    """In whatever pieces they come; the last one even if it never ended."""
    log_of(b"one\ntw", b"o\nthr", b"ee").close()
    assert capfd.readouterr().err == "one\ntwo\nthree"


async def test_of_a_process(capfd: pytest.CaptureFixture[str]) -> None:
    """All that a process has written is there when it has ended, however long its lines."""
    log = CoreLog()
    code = "import sys; sys.stderr.write(200_000 * 'x'); sys.exit('\\nError: no')"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=log.write_end)
    log.hand_over()
    await process.wait()
    log.close()
    assert log.error == "no"
    assert capfd.readouterr().err == 200_000 * "x" + "\nError: no\n"
