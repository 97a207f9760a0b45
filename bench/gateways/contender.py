"""The gateways that are compared, each started as its users start it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.gateways.api import GENERATE_MULTIPLEXED, GENERATE_STREAM, VLLM_ENGINE, Api, vllm_rs

_START_TIMEOUT_S = 300.0
_VLLM_ON_CPU = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
_CORE_READY = "core.process: ready"
_SMG_SCRIPT = """
import signal, sys, time
from smg.servicer import VllmGrpcServer
server = VllmGrpcServer(
    sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], engine_count=1, tokenizer_dir=sys.argv[4],
    served_model_name="m", tokenizer_path=sys.argv[4], max_context_length=8192, vocab_size=49152, model_type="llama",
    architectures=["LlamaForCausalLM"], eos_token_ids=[2], pad_token_id=2, bos_token_id=1,
    model_dtype="torch.bfloat16", block_size=16, max_num_seqs=4096)
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
while True:
    time.sleep(1)
"""


class ContenderError(Exception):
    """It did not come up, or gives no tokens; the text says which, and has its last words."""


@dataclass(frozen=True)
class Place:
    """What a contender gets: a folder of its own, ports, and the model's folder."""

    folder: Path
    model: Path
    port: int
    spare_port: int
    handshake_port: int


@dataclass(frozen=True)
class Contender:
    """``command`` listens for gRPC at the port of its place, and for a core at the handshake port."""

    name: str
    api: Api
    command: Callable[[Place], Sequence[str]]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Running:
    """A gateway with its core; ``pids`` are the gateway's own processes."""

    place: Place
    process: psutil.Process

    @property
    def processes(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]

    def cpu_s(self) -> float:
        """What the threads of all processes of the gateway have run, in seconds, as the system's scheduler counts."""
        tasks = [task for process in self.processes for task in Path(f"/proc/{process.pid}/task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def rss_bytes(self) -> int:
        """Resident memory of all its processes."""
        return sum(process.memory_info().rss for process in self.processes)


def ours(name: str, api: Api, *options: str) -> Contender:
    """``sluicegate gateway`` of this tree, with ``options``."""

    def command(place: Place) -> list[str]:
        listening = ["--grpc-address", f"127.0.0.1:{place.port}", "--admin-address", f"unix:{place.folder}/admin"]
        handshake = ["--handshake-address", f"tcp://127.0.0.1:{place.handshake_port}"]
        gateway = [sys.executable, "-P", "-m", "service", "gateway", str(place.model)]
        return [*gateway, *listening, *handshake, "--metrics-address", "off", *options]

    return Contender(name, api, command)


def smg(python: Path) -> Contender:
    """The Rust servicer inside PyPI's ``smg``, in an environment whose Python is ``python``."""

    def command(place: Place) -> list[str]:
        addresses = [f"127.0.0.1:{place.port}", f"ipc://{place.folder}/z", f"tcp://127.0.0.1:{place.handshake_port}"]
        return [str(python), "-c", _SMG_SCRIPT, *addresses, str(place.model)]

    return Contender("smg VllmGrpcServer", VLLM_ENGINE, command)


def rust_front_end(program: Path, version: str) -> Contender:
    """``vllm-rs`` of the wheel of vLLM ``version``."""

    def command(place: Place) -> list[str]:
        listening = ["--host", "127.0.0.1", "--port", str(place.spare_port), "--grpc-port", str(place.port)]
        cores = ["--data-parallel-size", "1", "--data-parallel-size-local", "0"]
        dialled = ["--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(place.handshake_port)]
        return [str(program), "serve", str(place.model), "--served-model-name", "m", *listening, *cores, *dialled]

    return Contender(f"vllm-rs {version}", vllm_rs("Generate" if version == "0.25.1" else "Inference"), command)


def python_servicer(python: Path) -> Contender:
    """vLLM's own gRPC server, in an environment that has vLLM and smg-grpc-servicer."""

    def command(place: Place) -> list[str]:
        listening = ["--host", "127.0.0.1", "--port", str(place.port)]
        cores = ["--data-parallel-size", "1", "--data-parallel-size-local", "0"]
        dialled = ["--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(place.handshake_port)]
        engine = ["--model", str(place.model), "--max-model-len", "8192", "--dtype", "float32"]
        return [str(python), "-m", "vllm.entrypoints.grpc_server", *listening, *cores, *dialled, *engine]

    return Contender("vLLM Python servicer", VLLM_ENGINE, command, _VLLM_ON_CPU)


OURS = (
    ours("sluicegate GenerateStream", GENERATE_STREAM),
    ours("sluicegate GenerateMultiplexed", GENERATE_MULTIPLEXED),
    ours("sluicegate VllmEngine", VLLM_ENGINE),
    ours("sluicegate GenerateStream, 2 workers", GENERATE_STREAM, "--gateway-workers", "2"),
)


@contextmanager
def running(contender: Contender, model: Path, folder: Path, *core_options: str) -> Iterator[Running]:
    """The contender before a null core with ``core_options``, ready to be called. Raises ContenderError."""
    place = Place(folder, model, *_free_ports(3))
    with ExitStack() as stack:
        gateway = stack.enter_context(_process(contender.command(place), folder / "gateway.log", contender.environment))
        dial = ["--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(place.handshake_port)]
        core = [sys.executable, "-P", "-m", "bench.null_core", *dial, *core_options]
        stack.enter_context(_process(core, folder / "core.log"))
        _wait_until_listening(place.port, gateway, folder / "gateway.log")
        _wait_until(lambda: _CORE_READY in (folder / "core.log").read_text(), folder)
        yield Running(place, psutil.Process(gateway.pid))


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def _process(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "HF_HUB_OFFLINE": "1", **(environment or {})},
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_listening(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    def listens() -> bool:
        if process.poll() is not None:
            raise ContenderError(f"the gateway ended with {process.returncode}: {log.read_text()[-1000:]}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    _wait_until(listens, log.parent)


def _wait_until(is_so: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise ContenderError(
                f"not ready after {_START_TIMEOUT_S:g} s: {(folder / 'gateway.log').read_text()[-1000:]}"
            )
        time.sleep(0.1)
