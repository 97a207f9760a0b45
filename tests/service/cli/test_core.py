"""`core`: becomes `python -m core`."""

import os
import subprocess
import sys
from pathlib import Path

from service.models import ModelFiles

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "service", "core", *arguments]
    environment = ENVIRONMENT | environment
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_help_is_the_core_s_own() -> None:
    """`core --help` and `core` alone print what the core takes."""
    for arguments in (["--help"], [], ["smollm2-135m", "-h"]):
        result = run(*arguments)
        assert result.returncode == 0
        assert "--kv-cache-memory" in result.stdout
        assert "--config FILE" in result.stdout


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


def test_file_speaks_to_the_core(smollm2_files: ModelFiles, tmp_path: Path) -> None:
    """Its keys are defaults: the environment and the flags come before them. MODEL may stand there, too."""
    config = tmp_path / "config.yaml"
    model = str(smollm2_files.path)
    config.write_text("headless: true\nmax-num-seqs: in-file\ndrain-timeout: 5\n")
    assert "'in-file' is not a valid integer" in run(model, "--config", str(config)).stderr
    assert "'in-file' is not a valid integer" in run(model, SLUICEGATE_CONFIG=str(config)).stderr
    assert "'in-env' is" in run(model, "--config", str(config), SLUICEGATE_MAX_NUM_SEQS="in-env").stderr
    assert "'in-flag' is" in run(model, "--max-num-seqs", "in-flag", "--config", str(config)).stderr
    config.write_text(f"model: {model}\nblock-size: 0\nhandshake-address: ipc:///nowhere\n")
    assert "block_size must be at least 1, got 0" in run("--config", str(config)).stderr


def test_broken_file(smollm2_files: ModelFiles, tmp_path: Path) -> None:
    """What no command knows is refused, with exit code 2."""
    config = tmp_path / "config.yaml"
    config.write_text("block-sise: 8\n")
    result = run(str(smollm2_files.path), "--config", str(config))
    assert result.returncode == 2
    assert "unknown keys: block-sise" in result.stderr


def test_usage_is_of_the_command_that_was_given() -> None:
    """Not of what it becomes."""
    assert "Usage: sluicegate core [OPTIONS] MODEL" in run("--help").stdout
    assert "Try 'sluicegate core --help'" in run("--no-such-flag=1").stderr
