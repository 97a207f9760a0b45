"""A container that runs out of memory, not by its largest process, which is the one that the kernel ends."""

import contextlib
import subprocess

from tests.deploy.container.podman import Container, PodmanError

# 60 processes of 32 MiB each.
_SMALL_ONES = """
import os, signal
for _ in range(60):
    if os.fork() == 0:
        memory = b"x" * (32 << 20)
        signal.pause()
signal.pause()
"""


def fill_memory(container: Container) -> str:
    """The kernel's own words, once it has killed the container's first process, and so all, for others' memory."""
    pid = container.pid()
    with contextlib.suppress(PodmanError):
        container.execute("python", "-c", _SMALL_ONES)
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True, timeout=60).stdout
    (line,) = [line for line in log.splitlines() if f"Killed process {pid} " in line]
    return line.partition("] ")[2]
