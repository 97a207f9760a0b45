"""Processes that are started with standard files closed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_SHOW = """
import os, sys
from core.wire.standard_files import open_standard_files
open_standard_files()
next_opened = os.open("/dev/zero", os.O_RDONLY)
print("to nobody", file=sys.stderr)
with open(sys.argv[1], "w") as report:
    print(*(os.readlink(f"/proc/self/fd/{number}") for number in range(3)), next_opened > 2, file=report)
"""


def run_without(closed: str, *arguments: str) -> int:
    """``python ARGUMENTS`` as a shell starts it with the redirections ``closed``."""
    command = ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, *arguments]
    files = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    return subprocess.run(command, cwd=ROOT, check=False, **files).returncode


@pytest.mark.parametrize("closed", ["", "0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_what_is_closed_is_opened(tmp_path: Path, closed: str) -> None:
    """Nothing else gets the numbers 0 to 2, and what is written there goes nowhere."""
    report = tmp_path / "report"
    assert run_without(closed, "-c", _SHOW, str(report)) == 0
    assert report.read_text() == "/dev/null /dev/null /dev/null True\n"


@pytest.mark.parametrize("module", ["core", "service"])
def test_both_programs_start_without(module: str) -> None:
    """The core and the gateway, in the one thing they do that needs no model."""
    assert run_without("0<&- 1>&- 2>&-", "-m", module, "--help") == 0
