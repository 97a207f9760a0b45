"""What the cgroups around a process leave it of memory. The kernel kills who takes more."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


class _Version(NamedTuple):
    """Where a version of cgroups has what."""

    controller: str
    """As ``/proc/self/cgroup`` names it, and the folder below the root."""
    limits: tuple[str, ...]
    current: str
    cached: str
    """In ``memory.stat``: of files, and let go of before anybody is killed."""


_VERSIONS = (
    _Version("", ("memory.max", "memory.high"), "memory.current", "inactive_file"),
    _Version("memory", ("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
)


def memory_left_bytes(root: Path = ROOT, own: Path = OWN) -> float:
    """What the tightest limit leaves; infinite without one. What a cgroup has read from files counts as free."""
    left = math.inf
    for version in _VERSIONS:
        for folder in _folders(root, own, version.controller):
            limit = min(_number(folder / name, math.inf) for name in version.limits)
            used = _number(folder / version.current, 0.0) - _cached_bytes(folder, version.cached)
            left = min(left, max(limit - used, 0.0))
    return left


def read_setting(path: Path) -> str:
    """``max`` is how version 2 writes that there is no limit; so is a missing file."""
    try:
        return path.read_text().strip() or "max"
    except OSError:
        return "max"


def _folders(root: Path, own: Path, controller: str) -> Iterator[Path]:
    """From the root that a container sees, or the system's, down to the process's own: each may have a limit."""
    folder = root / controller
    yield folder
    for line in read_setting(own).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            for part in Path(path).parts[1:]:
                folder /= part
                yield folder


def _cached_bytes(folder: Path, name: str) -> float:
    words = read_setting(folder / "memory.stat").split()
    return float(words[words.index(name) + 1]) if name in words else 0.0


def _number(path: Path, otherwise: float) -> float:
    text = read_setting(path)
    return float(text) if text.isdigit() else otherwise
