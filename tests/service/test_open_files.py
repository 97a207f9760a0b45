"""The limit of open files."""

import subprocess
import sys

import pytest

CODE = """
import resource
from service.open_files import allow_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
allow_open_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("soft", "hard", "after"), [(64, 512, "512 512\n"), (256, 256, "256 256\n")])
def test_as_many_as_allowed(soft: int, hard: int, after: str) -> None:
    """The soft limit becomes the hard one."""
    command = [sys.executable, "-c", CODE.format(soft=soft, hard=hard)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == after
