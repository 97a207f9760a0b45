"""`sluicegate serve --engine vllm`, with a stand-in for vLLM: it begins, serves and ends with the gateway."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bench.server_process import ServerError
from sluicegate_client import Client
from tests.e2e import fake_vllm
from tests.e2e.server import EXIT_TIMEOUT_S, Server, serving
from tests.model_files import SMOLLM2_FOLDER

ROOT = Path(__file__).parents[2]


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    """What --engine-python takes."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncd {ROOT}\nexec {sys.executable} {fake_vllm.__file__} "$@"\n')
    python.chmod(0o755)
    return python


@pytest.fixture
def server(vllm: Path) -> Iterator[Server]:
    """With two cores."""
    flags = "--engine", "vllm", "--engine-python", str(vllm), "--data-parallel-size", "2"
    with serving(*flags, "--", "--tp=4", quantization=None) as server:
        yield server


def _processes(server: Server) -> tuple[psutil.Process, list[psutil.Process]]:
    """The one between gateway and engine, and the engine with its cores."""
    (between,) = psutil.Process(server.process.pid).children()
    engine = between.children(recursive=True)
    assert len(engine) == 3
    return between, engine


def _check_gone(processes: list[psutil.Process]) -> None:
    _gone, alive = psutil.wait_procs(processes, EXIT_TIMEOUT_S)
    assert not alive


def test_its_cores_serve_and_sigterm_ends_all_with_0(server: Server) -> None:
    """They got the options of the command line, and what the gateway knows: how many they are, how long a drain is."""
    between, engine = _processes(server)
    with Client(server.address) as client:
        assert {*client.generate("Hello", max_tokens=3, ignore_eos=True).token_ids} < {*range(500, 600)}
    assert f"fake vllm serves {SMOLLM2_FOLDER}" in server.process.log
    assert "--shutdown-timeout=40 --max-logprobs=20 --tensor-parallel-size=1 --tp=4\n" in server.process.log
    server.process.terminate(EXIT_TIMEOUT_S)
    _check_gone([between, *engine])


def test_a_gateway_that_is_killed_takes_the_engine_along(server: Server) -> None:
    """Which would have lived on: it has no lifeline of its own."""
    between, engine = _processes(server)
    server.process.send_signal(signal.SIGKILL)
    _check_gone([between, *engine])


def test_an_engine_whose_parent_is_killed_leaves_nothing_and_is_started_again(server: Server) -> None:
    """Its cores are swept; the log says by what it ended; a stream goes on with the cores that come."""
    between, engine = _processes(server)
    with Client(server.address) as client:
        stream = client.stream("Hello", max_tokens=200, temperature=0, ignore_eos=True)
        token_ids = list(next(stream).token_ids)
        between.children()[0].kill()
        for delta in stream:
            token_ids += delta.token_ids
    assert len(token_ids) == 200
    assert token_ids == [500 + (token_ids[0] - 500 + i) % 100 for i in range(200)]
    _check_gone([between, *engine])
    assert "exiting: vLLM ended with signal 9 (Killed)" in server.process.log


def test_an_engine_that_may_not_be_started_again(vllm: Path) -> None:
    """Its end is the gateway's, exit code 1; nothing is left."""
    flags = "--engine", "vllm", "--engine-python", str(vllm), "--data-parallel-size", "2", "--max-core-restarts", "0"
    with serving(*flags, "--", "--tp=4", quantization=None) as server:
        between, engine = _processes(server)
        between.children()[0].kill()
        assert server.process.wait(EXIT_TIMEOUT_S) == 1
        _check_gone([between, *engine])


def test_an_engine_that_refuses_its_options_is_named(vllm: Path) -> None:
    """Its exit code is in the error."""
    with (
        pytest.raises(ServerError, match=r"the core failed to load: .* exit code 2: vLLM ended with exit code 2"),
        serving("--engine", "vllm", "--engine-python", str(vllm), "--", "--no-such-option", quantization=None),
    ):
        pass
