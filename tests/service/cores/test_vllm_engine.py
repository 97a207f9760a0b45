"""The process between gateway and vLLM, with programs in vLLM's place. See also tests/e2e/test_vllm_engine.py."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from service.cores.vllm_engine import __name__ as vllm_engine
from service.cores.vllm_engine import engine_command

PATIENCE_S = 60
STUBBORN = """#!/bin/sh
trap '' TERM
tail -f /dev/null &
echo ready
wait
"""
"""Nor it nor its child, which inherits that, ends at SIGTERM."""


@pytest.mark.parametrize(("address", "host"), [("tcp://10.0.0.1:5", "10.0.0.1"), ("tcp://[::1]:5", "::1")])
def test_vllm_s_own_command_line(address: str, host: str) -> None:
    """Engines without a front end, which dial the gateway."""
    assert engine_command("/v/python", "/m", address, ["--x"]) == [
        *("/v/python", "-m", "vllm.entrypoints.cli.main", "serve", "/m", "--headless"),
        *("--data-parallel-address", host, "--data-parallel-rpc-port", "5", "--x"),
    ]


@contextmanager
def started(python: Path, grace_s: float) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process, and the gateway's end of its lifeline."""
    lifeline, held_end = os.pipe()
    flags = [f"--engine-python={python}", "--model=/m", "--handshake-address=tcp://127.0.0.1:5"]
    flags += [f"--lifeline-fd={lifeline}", f"--terminate-grace-s={grace_s}"]
    command = [sys.executable, "-m", vllm_engine, *flags]
    with subprocess.Popen(
        command, pass_fds=[lifeline], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(lifeline)
        try:
            yield process, held_end
        finally:
            process.kill()


@pytest.fixture
def stubborn(tmp_path: Path) -> Path:
    python = tmp_path / "python"
    python.write_text(STUBBORN)
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("gateway_dies", [False, True], ids=["SIGTERM", "end of the lifeline"])
def test_an_engine_that_ignores_sigterm_is_killed_with_all_it_started(stubborn: Path, gateway_dies: bool) -> None:
    """Once its time is up; the exit code is that of who ends by SIGKILL."""
    with started(stubborn, grace_s=0.2) as (process, held_end):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        engine = psutil.Process(process.pid).children(recursive=True)
        assert len(engine) == 2
        if gateway_dies:
            os.close(held_end)
        else:
            process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 128 + signal.SIGKILL
        assert psutil.wait_procs(engine, PATIENCE_S)[1] == []
    assert ("the gateway is gone" in errors) == gateway_dies
    assert errors.endswith("exiting: vLLM ended with signal 9 (Killed)\n")


def test_an_engine_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    """With the reason; the exit code is 1."""
    with started(tmp_path / "missing", grace_s=1) as (process, _):
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert f"cannot start vLLM: [Errno 2] No such file or directory: '{tmp_path}/missing'" in errors
