"""What the machine, or the container around us, really grants."""

import contextlib
import ctypes
import math
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


def available_cpus(cgroup: Path = _CGROUP) -> int:
    """CPUs this process may run on, at most its cgroup's quota, at least 1."""
    cpus = len(os.sched_getaffinity(0))
    quota, *period = _read(cgroup / "cpu.max").split()
    if quota.isdigit():
        cpus = min(cpus, math.ceil(int(quota) / int(period[0])))
    return max(cpus, 1)


def available_memory_bytes(cgroup: Path = _CGROUP, own_cgroup: Path = _OWN_CGROUP) -> int:
    """Memory that can be taken without swapping and within the limits of the process's cgroups.

    What a cgroup has read from files counts as free: the kernel lets go of it first.
    """
    available: float = psutil.virtual_memory().available
    for folder in _memory_cgroups(cgroup, own_cgroup):
        current = _number(folder / "memory.current")
        used = current - _cached_file_bytes(folder) if current < math.inf else 0.0
        for limit in (_number(folder / "memory.max"), _number(folder / "memory.high")):
            available = min(available, max(limit - used, 0))
    return int(available)


def own_memory_bytes() -> int:
    """Memory that is this process's own, not a file's."""
    memory = psutil.Process().memory_info()
    return memory.rss - memory.shared


def _memory_cgroups(root: Path, own_cgroup: Path) -> Iterator[Path]:
    """From the root that a container sees, or the system's, down to the process's own: each may have a limit."""
    own = next((line[3:] for line in _read(own_cgroup).splitlines() if line.startswith("0::")), "/")
    yield root
    for part in Path(own).parts[1:]:
        root /= part
        yield root


def _cached_file_bytes(folder: Path) -> float:
    words = _read(folder / "memory.stat").split()
    return float(words[words.index("inactive_file") + 1]) if "inactive_file" in words else 0.0


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


def _number(path: Path) -> float:
    """Infinite where there is no limit."""
    text = _read(path)
    return float(text) if text.isdigit() else math.inf
