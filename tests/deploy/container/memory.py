"""A container that runs out of memory, not by its largest process, which is the one that the kernel ends."""

import contextlib

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


def fill_memory(container: Container) -> None:
    """Returns when the kernel has killed the container's first process, and so all of it, for the memory of others."""
    with contextlib.suppress(PodmanError):
        container.execute("python", "-c", _SMALL_ONES)
