"""podman and buildah where no engine runs, with storage, networks and locks of their own: the user's stay as they are.

Everything lies in ``$XDG_CACHE_HOME/sluicegate/container`` and, while containers run, in a folder for that cache below
``/run/sluicegate-container``: `podman system reset` of one leaves another's alone. A container lives as long as its
``with`` block::

    with running("localhost/sluicegate:test", options=HARDENED) as container:
        container.until_logged("ready grpc=")
        channel = grpc.insecure_channel(f"{container.ip()}:50051")
"""

import hashlib
import json
import os
import re
import subprocess
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs

FOLDER = platformdirs.user_cache_path("sluicegate") / "container"
_DIGEST = hashlib.sha256(bytes(FOLDER)).digest()
# Not in the cache: sockets lie there, whose paths are bounded.
_RUN_FOLDER = Path("/run/sluicegate-container") / _DIGEST[:4].hex()
ANY_USER = "--user=12345:0"
HARDENED = (
    "--read-only",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--memory=2g",
    "--pids-limit=256",
    "--tmpfs=/home/sluicegate:mode=1777",
    ANY_USER,
)
"""As a careful cluster runs it: nothing may be written but /tmp and the home, and the user is nobody that it knows."""

_CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=16384:16384", "nproc=10000:10000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "{run_folder}/libpod"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
default_network = "sluicegate"
"""
_STORAGE_CONF = """
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{run_folder}"
"""
_NETWORK = {
    "name": "sluicegate",
    "id": hashlib.sha256(_DIGEST).hexdigest(),
    "driver": "bridge",
    "network_interface": f"sg-{_DIGEST[:4].hex()}",
    "created": "2026-01-01T00:00:00Z",
    "subnets": [{"subnet": f"10.213.{_DIGEST[0]}.0/24", "gateway": f"10.213.{_DIGEST[0]}.1"}],
    "ipam_options": {"driver": "host-local"},
}
"""With a bridge of its own: one that another cache's podman had left, with other addresses, would be taken for it."""


class PodmanError(Exception):
    """What the program said before it failed."""


@cache
def environment() -> dict[str, str]:
    """For podman and buildah, or programs that run them."""
    folders = {name: FOLDER / name for name in ("networks", "tmp")}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    configurations = {"CONTAINERS_CONF": _CONTAINERS_CONF, "CONTAINERS_STORAGE_CONF": _STORAGE_CONF}
    for name, text in configurations.items():
        (FOLDER / f"{name.lower()}.toml").write_text(text.format(folder=FOLDER, run_folder=_RUN_FOLDER))
    (folders["networks"] / "sluicegate.json").write_text(json.dumps(_NETWORK))
    files = {name: str(FOLDER / f"{name.lower()}.toml") for name in configurations}
    return {**os.environ, **files, "BUILDAH_ISOLATION": "chroot", "TMPDIR": str(folders["tmp"])}


def podman(*arguments: str, stdin: Path | None = None, timeout_s: float = 300) -> str:
    """What it prints. Raises PodmanError."""
    variables = environment()
    with (stdin or Path(os.devnull)).open("rb") as source:
        done = subprocess.run(
            ["podman", *arguments],
            env=variables,
            cwd=FOLDER,  # conmon leaves a file named oom where it was started, for a container that was out of memory
            stdin=source,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    if done.returncode != 0:
        raise PodmanError(f"podman {' '.join(arguments)}: {done.stderr}{done.stdout}")
    return done.stdout.strip()


@dataclass(frozen=True)
class Container:
    """One that was started, whether it still runs or not."""

    name: str

    def inspect(self, template: str) -> str:
        """Of Go, such as ``{{.State.ExitCode}}``."""
        return podman("inspect", "--format", template, self.name)

    def ip(self) -> str:
        """In the network, which this machine reaches."""
        networks: dict[str, Any] = json.loads(self.inspect("{{json .NetworkSettings.Networks}}"))
        return str(next(iter(networks.values()))["IPAddress"])

    def published(self, port: int) -> str:
        """The address on this machine that ``--publish`` gave it."""
        return podman("port", self.name, f"{port}/tcp")

    def pid(self) -> int:
        """Of its first process, as this machine counts."""
        return int(self.inspect("{{.State.Pid}}"))

    def execute(self, *command: str) -> str:
        """What a command prints in it. Raises PodmanError if it fails."""
        return podman("exec", self.name, *command)

    def signal(self, name: str) -> None:
        podman("kill", f"--signal={name}", self.name)

    def exit_code(self) -> int:
        """When it has ended."""
        return int(podman("wait", self.name))

    def is_healthy(self) -> bool:
        """By the HEALTHCHECK of its image, asked now."""
        command = ["podman", "healthcheck", "run", self.name]
        return subprocess.run(command, env=environment(), capture_output=True, timeout=60).returncode == 0

    def log(self) -> str:
        """Standard output and standard error."""
        done = subprocess.run(
            ["podman", "logs", self.name], env=environment(), stdout=-1, stderr=subprocess.STDOUT, text=True, timeout=60
        )
        return done.stdout

    def until_logged(self, pattern: str, timeout_s: float = 120) -> re.Match[str]:
        """The match, as soon as ``pattern`` is there. Raises PodmanError with the log if it never is."""
        follow = ["podman", "logs", "--follow", self.name]
        with subprocess.Popen(
            follow, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            timer = threading.Timer(timeout_s, process.kill)
            timer.start()
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    if match := re.search(pattern, line):
                        return match
            finally:
                timer.cancel()
                process.kill()
        raise PodmanError(f"{self.name} never said {pattern!r}:\n{self.log()}")


@contextmanager
def running(image: str, *command: str, options: Sequence[str] = HARDENED, name: str = "") -> Iterator[Container]:
    """A container of ``image``, which is gone, with all that it wrote, at the end of the block."""
    name = name or f"sluicegate-{uuid.uuid4().hex[:8]}"
    try:
        podman("run", "--detach", f"--name={name}", *options, image, *command)
        yield Container(name)
    finally:
        # A step of its own, whose failure is told: on a busy machine `rm` alone once left the process running.
        try:
            podman("stop", "--ignore", "--time=0", name)
        finally:
            podman("rm", "--force", "--ignore", "--volumes", name)


@contextmanager
def volume() -> Iterator[str]:
    """The name of a volume, empty, for containers that share it."""
    name = podman("volume", "create")
    try:
        yield name
    finally:
        podman("volume", "rm", "--force", name)
