"""What the machine, or the container around us, really grants."""

import contextlib
import ctypes
import math
import os
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


def available_cpus(cgroup: Path = _CGROUP) -> int:
    """CPUs this process may run on, at most its cgroup's quota, at least 1."""
    cpus = len(os.sched_getaffinity(0))
    quota, *period = _read(cgroup / "cpu.max").split()
    if quota.isdigit():
        cpus = min(cpus, math.ceil(int(quota) / int(period[0])))
    return max(cpus, 1)


def available_memory_bytes(cgroup: Path = _CGROUP) -> int:
    """Memory that can be taken without swapping and within the cgroup's limit."""
    available = psutil.virtual_memory().available
    limit, used = _read(cgroup / "memory.max"), _read(cgroup / "memory.current")
    if limit.isdigit() and used.isdigit():
        available = min(available, max(int(limit) - int(used), 0))
    return available


def trim_heap() -> None:
    """Give the system back what was freed here, if this libc can: glibc keeps blocks of up to 32 MiB."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _read(path: Path) -> str:
    """``max`` is how cgroup v2 writes that there is no limit; so is a missing file."""
    try:
        return path.read_text().strip() or "max"
    except OSError:
        return "max"
