"""Kernels in C++, one module for each instruction set, built with the package where there is a compiler."""

import importlib
import logging
from pathlib import Path
from typing import cast

from core.native.kernels import Kernels

logger = logging.getLogger(__name__)

_CPU_INFO = Path("/proc/cpuinfo")
_NEEDED_FLAGS = {
    "avx512": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni"},
    "avx2": {"avx2", "fma", "f16c", "bmi1", "bmi2", "movbe"},
}
"""What a CPU must have, in the words of ``/proc/cpuinfo``; the fastest first."""
KERNELS = ("auto", *_NEEDED_FLAGS, "torch")
"""``auto``: the fastest that this CPU can run and that were built; ``torch``: none of ours."""


def find_kernels(name: str = "auto") -> Kernels | None:
    """None: torch has to do. Raises ValueError for a name that is none, or kernels that this machine cannot run."""
    if name not in KERNELS:
        raise ValueError(f"kernels must be one of {', '.join(KERNELS)}, got {name!r}")
    if name == "auto":
        return next((found for name in runnable_kernels() if (found := _load(name)) is not None), None)
    if name == "torch":
        return None
    if name not in runnable_kernels():
        raise ValueError(
            f"kernels must be what this CPU can run, {', '.join(runnable_kernels()) or 'torch'}, got {name!r}"
        )
    if (found := _load(name)) is None:
        raise ValueError(f"kernels {name!r} were not built: there was no C++ compiler when this was installed")
    return found


def runnable_kernels() -> list[str]:
    """What this CPU can run, whether it was built or not; the fastest first."""
    flags = _cpu_flags()
    return [name for name, needed in _NEEDED_FLAGS.items() if needed <= flags]


def _load(name: str) -> Kernels | None:
    try:
        return cast(Kernels, importlib.import_module(f"core.native._{name}"))
    except ImportError as error:
        logger.warning("kernels %s cannot be used, so that a model is computed several times slower: %s", name, error)
        return None


def _cpu_flags() -> set[str]:
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
