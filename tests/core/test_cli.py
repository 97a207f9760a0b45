"""The command line of a core alone."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from core.cli import ByteSize, command
from core.process_options import _tcp_address
from service.models import resolve_model
from tests.core.front_end import ROOT, FrontEnd, make_request

ADDRESS = ("--handshake-address", "ipc:///nowhere")
SECOND_HOST = ("--tensor-parallel-size=2", "--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1")


def run_core(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``python -m core`` to its end, which is to be that of a command line in error."""
    command_line = [sys.executable, "-m", "core", *arguments]
    return subprocess.run(
        command_line, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60
    )


def test_help_names_every_variable() -> None:
    """The help shows each option with its name in the environment."""
    done = run_core("--help")
    assert done.returncode == 0
    words = done.stdout.replace("\n", " ").split()
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert any(f"SLUICEGATE_{str(parameter.name).upper()}" in word for word in words), parameter.name


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), "Missing argument 'MODEL'"),
        (("/no/model", "--block-size", "x"), "/no/model: no such file or folder"),
        (("--unknown", "x", "/tmp"), "MODEL must come before options that this command does not know"),
        (("/tmp",), "give --handshake-address, or --data-parallel-address and --data-parallel-rpc-port"),
        (("/tmp", "--data-parallel-rpc-port", "70000"), "70000 is not in the range"),
        (("/tmp", *ADDRESS, "--max-num-seqs", "0"), "max_num_seqs must be at least 1, got 0"),
        (("/tmp", *ADDRESS, "--max-num-batched-tokens", "9"), "max_num_batched_tokens must be at least max_num_seqs"),
        (("/tmp", *ADDRESS, "--block-size=0"), "block_size must be at least 1, got 0"),
        (("/tmp", *ADDRESS, "--max-model-len", "0"), "0 is not in the range x>=1"),
        (("/tmp", *ADDRESS, "--num-speculative-tokens", "33"), "num_speculative_tokens must be in [0, 32], got 33"),
        (("/tmp", *ADDRESS, "--num-speculative-tokens=3", "--async-scheduling"), "must be 0 with async_scheduling"),
        (("/tmp", *ADDRESS, "--max-itl-stretch", "1"), "max_itl_stretch must be 0 or more than 1, got 1.0"),
        (("/tmp", *ADDRESS, "--max-itl-stretch", "nan"), "max_itl_stretch must be 0 or more than 1, got nan"),
        (("/tmp", *ADDRESS, "--scheduling-policy", "sjf"), "'sjf' is not one of 'fcfs', 'priority'"),
        (("/tmp", *ADDRESS, "--kv-cache-memory", "2GB"), "'2GB' is not a size such as 2GiB"),
        (("/tmp", *ADDRESS, "--kv-events-endpoint", "5557"), "kv_events_endpoint must be tcp://HOST:PORT"),
        (("/tmp", *ADDRESS, "--kv-events-replay-endpoint", "ipc://x"), "needs --kv-events-endpoint"),
        (("/tmp", *ADDRESS, "--kv-events-endpoint=ipc://x", "--no-enable-prefix-caching"), "there are no events with"),
        (
            ("/tmp", *ADDRESS, "--tensor-parallel-size=3", "--nnodes=2"),
            "tensor_parallel_size 3 must be a multiple of nn",
        ),
        (("/tmp", *ADDRESS, "--local", *SECOND_HOST), "host 1 of 2 only runs ranks: `sluicegate core` there"),
        (("/tmp", *ADDRESS, "--shutdown-timeout", "-1"), "-1.0 is not in the range x>=0"),
        (("-m", "vllm.entrypoints.cli.main", "serve", "/no/model", "--headless"), "/no/model: no such file or folder"),
    ],
)
def test_errors(arguments: tuple[str, ...], error: str) -> None:
    """What is wrong with a command line is said at once, with exit code 2; a wrong path before all else."""
    done = run_core(*arguments)
    assert done.returncode == 2
    assert error in " ".join(done.stderr.split())


def test_environment() -> None:
    """Options may come from the environment."""
    done = run_core("/tmp", *ADDRESS, SLUICEGATE_KV_CACHE_MEMORY="much")
    assert "'much' is not a size" in done.stderr


def test_torch_is_not_imported() -> None:
    """The command line is read without torch."""
    code = "import core.cli, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1073741824", 1 << 30), ("2GiB", 2 << 30), ("512 MiB", 512 << 20), ("3KiB", 3072), ("1TiB", 1 << 40)],
)
def test_sizes(text: str, size: int) -> None:
    """Sizes are plain bytes or have a binary unit."""
    assert ByteSize().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "GiB", "1.5GiB", "-1", "1GB", "1gib", "1 G"])
def test_no_sizes(text: str) -> None:
    """Anything else is refused, with an example of what is meant."""
    with pytest.raises(click.BadParameter, match="is not a size such as 2GiB"):
        ByteSize().convert(text, None, None)


def test_called_by_vllm_rs(tmp_path: Path) -> None:
    """The argv that vllm-rs hands its engine runs the model: greedy tokens equal those of the genuine core."""
    model = resolve_model("smollm2-135m", lambda *_: None).path
    with FrontEnd(tmp_path, scheme="tcp") as front_end:
        core = start_as_vllm_rs_does(model, front_end.address)
        try:
            hello = front_end.receive_hello()
            assert (hello.local, hello.headless) == (False, True)
            front_end.send_init()
            assert front_end.receive_ready_response().max_model_len == 128
            front_end.receive_hello()
            request = make_request("a", temperature=0.0, max_tokens=8)
            request.prompt_token_ids = [504, 3575, 282, 4649, 314]
            front_end.send_request(request)
            outputs = front_end.receive_until_finished("a")["a"]
            assert [output.new_token_ids[0] for output in outputs] == [7042, 30, 198, 198, 504, 2988, 314, 42]
            core.terminate()
            _, log = core.communicate(timeout=60)
            assert core.returncode == 0
            assert "ignored, being unknown here: --data-parallel-size 1 --enforce-eager --swap-space=4" in log
        finally:
            core.kill()
            core.communicate()


def start_as_vllm_rs_does(model: Path, address: str) -> "subprocess.Popen[Any]":
    host, port = address.removeprefix("tcp://").split(":")
    vllm = ["-m", "vllm.entrypoints.cli.main", "serve", str(model), "--headless"]
    handshake = ["--data-parallel-address", host, "--data-parallel-rpc-port", port, "--data-parallel-size", "1"]
    options = ["--dtype=float32", "--quantization", "none", "--enforce-eager", "--swap-space=4"]
    command_line = [sys.executable, "-m", "core", *vllm, *handshake, *options, "--max-model-len", "128"]
    return subprocess.Popen(command_line, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def test_addresses() -> None:
    """Host and port become a zmq address, IPv6 in brackets."""
    assert _tcp_address("127.0.0.1", 5) == "tcp://127.0.0.1:5"
    assert _tcp_address("::1", 5) == "tcp://[::1]:5"
