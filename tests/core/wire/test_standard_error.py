"""A log that nobody reads, or not yet."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from core.wire.standard_error import PatientFile

LINE = 99 * b"x" + b"\n"
MORE_THAN_A_PIPE = 2000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Its end to read, and its end to write."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def read(descriptor: int, num_bytes: int) -> bytes:
    data = b""
    while len(data) < num_bytes:
        data += os.read(descriptor, num_bytes - len(data))
    return data


def num_lines_there(descriptor: int) -> int:
    """Read them."""
    try:
        return os.read(descriptor, 1 << 20).count(b"\n")
    except BlockingIOError:
        return 0


def test_nobody_waits_for_the_reader(pipe: tuple[int, int]) -> None:
    """Lines are kept until they are read, and come whole and in order."""
    file = PatientFile(pipe[1])
    lines = [b"%d " % i + LINE for i in range(MORE_THAN_A_PIPE)]
    for line in lines:
        file.write(line)
    file.flush(0)
    expected = b"".join(lines)
    assert read(pipe[0], len(expected)) == expected
    file.flush(60)
    file.write(LINE)
    assert read(pipe[0], len(LINE)) == LINE


def test_what_is_dropped_is_told(pipe: tuple[int, int], caplog: pytest.LogCaptureFixture) -> None:
    """Of what is more than is kept, once there is room again."""
    file = PatientFile(pipe[1], max_kept_bytes=10 * len(LINE))
    for _ in range(MORE_THAN_A_PIPE):
        file.write(LINE)
    os.set_blocking(pipe[0], False)
    num_read = 0
    while not caplog.messages:
        num_read += num_lines_there(pipe[0])
    num_read += num_lines_there(pipe[0])
    num_dropped = MORE_THAN_A_PIPE - num_read
    assert caplog.messages == [f"{num_dropped} lines of the log were dropped: standard error was not read"]


@pytest.mark.parametrize("path", ["/dev/full", "/dev/null"])
def test_file_that_takes_nothing(path: str) -> None:
    """A full disk is no reason to fail."""
    with open(path, "wb") as opened:
        PatientFile(opened.fileno()).write(LINE)


def test_a_line_longer_than_the_pipe(pipe: tuple[int, int]) -> None:
    """It is written as it is read."""
    long = 200_000 * b"x" + b"\n"
    PatientFile(pipe[1], max_kept_bytes=10).write(long)
    assert read(pipe[0], len(long)) == long


@pytest.mark.parametrize("logs", ["core.logs", "service.logs"])
def test_process_that_nobody_listens_to(logs: str) -> None:
    """It logs more than a pipe holds, and ends all the same."""
    code = f"import logging; from {logs} import configure_logging; configure_logging('info', 'text')\n"
    code += f"for _ in range({MORE_THAN_A_PIPE}): logging.error(100 * 'x')"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as process:
        assert process.wait(60) == 0
