"""Environments of peers: folders in the cache, each with a Python of its own and what a recipe has put there."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.peer import PeerError
from service.models.resolve import cache_folder

_NICE = 10
_LAST_WORDS = 2000


@dataclass(frozen=True)
class PeerEnvironment:
    """``complete`` is there when all of the recipe is done; what an earlier run left undone begins anew."""

    name: str

    @property
    def folder(self) -> Path:
        return cache_folder() / "peers" / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    @property
    def site_packages(self) -> Path:
        (folder,) = self.folder.glob("lib/python*/site-packages")
        return folder

    @property
    def complete(self) -> Path:
        return self.folder / "complete"

    def make(self) -> None:
        """An empty one."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.run([sys.executable, "-m", "venv", str(self.folder)])

    def install(self, *packages: str, options: Sequence[str] = ()) -> None:
        """``packages`` from the package index."""
        self.run([str(self.python), "-m", "pip", "install", "--disable-pip-version-check", *options, *packages])

    def run(self, command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
        """At low priority, with the environment's programs first. Raises PeerError with the command's last words."""
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        done = subprocess.run(
            ["nice", "-n", str(_NICE), *command],
            env={**os.environ, "PATH": path, **(variables or {})},
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode != 0:
            raise PeerError(f"{' '.join(command)[:200]}: {(done.stdout + done.stderr)[-_LAST_WORDS:]}")
