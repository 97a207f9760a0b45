"""`core`: becomes `python -m core`."""

import os
import subprocess
import sys

from service.models import ModelFiles

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "service", "core", *arguments]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)


def test_help_is_the_core_s_own() -> None:
    """`core --help` and `core` alone print what the core takes."""
    for arguments in (["--help"], []):
        result = run(*arguments)
        assert result.returncode == 0
        assert "--kv-cache-memory" in result.stdout


def test_model_that_is_not_there() -> None:
    """A wrong MODEL is named before the core starts."""
    result = run("/no/such/model", "--headless")
    assert result.returncode == 1
    assert "/no/such/model" in result.stderr


def test_flags_reach_the_core(smollm2_files: ModelFiles) -> None:
    """MODEL becomes its file, and the flags go to the core as they are: here one that it refuses."""
    result = run(str(smollm2_files.path), "--headless", "--max-num-seqs", "many")
    assert result.returncode == 2
    assert "'many' is not a valid integer" in result.stderr
