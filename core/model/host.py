"""What the machine, or the container around us, really grants."""

import contextlib
import ctypes
import math
import os
from pathlib import Path

import psutil

from core.model.cgroup import OWN, ROOT, memory_left_bytes, read_setting


def available_cpus(cgroup: Path = ROOT) -> int:
    """CPUs this process may run on, at most its cgroup's quota, at least 1."""
    cpus = len(os.sched_getaffinity(0))
    quota, *period = read_setting(cgroup / "cpu.max").split()
    if quota.isdigit():
        cpus = min(cpus, math.ceil(int(quota) / int(period[0])))
    return max(cpus, 1)


def available_memory_bytes(cgroup: Path = ROOT, own_cgroup: Path = OWN) -> int:
    """Memory that can be taken without swapping and within the limits of the process's cgroups."""
    return int(min(psutil.virtual_memory().available, memory_left_bytes(cgroup, own_cgroup)))


def own_memory_bytes() -> int:
    """Memory that is this process's own, not a file's."""
    memory = psutil.Process().memory_info()
    return memory.rss - memory.shared


def trim_heap() -> None:
    """Give the system back what was freed here, if this libc can: glibc keeps blocks of up to 32 MiB."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
