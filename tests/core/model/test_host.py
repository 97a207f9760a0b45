"""What a container grants."""

import gc
import mmap
import os
from pathlib import Path

import psutil
import pytest

from core.model.host import available_cpus, available_memory_bytes, own_memory_bytes, trim_heap


@pytest.mark.parametrize(
    ("quota", "cpus"), [("50000 100000", 1), ("100000 100000", 1), ("max 100000", None), (None, None)]
)
def test_the_cpu_quota_counts(tmp_path: Path, quota: str | None, cpus: int | None) -> None:
    """Rounded up; without one, the CPUs that the process may run on."""
    if quota is not None:
        (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert available_cpus(tmp_path) == (cpus or len(os.sched_getaffinity(0)))


def test_the_memory_limit_counts(tmp_path: Path) -> None:
    """What the limit leaves, never less than nothing; without one, what the machine has."""
    assert available_memory_bytes(tmp_path) == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert available_memory_bytes(tmp_path) > 1000
    (tmp_path / "memory.max").write_text("1000\n")
    assert available_memory_bytes(tmp_path) == 600
    (tmp_path / "memory.current").write_text("1100\n")
    assert available_memory_bytes(tmp_path) == 0


def test_own_memory_is_without_files() -> None:
    """What was taken counts, here from the system itself: the heap may have that much which nobody uses."""
    gc.collect()  # Models of other tests, which would be freed meanwhile.
    before = own_memory_bytes()
    with mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        block.write(bytes([1]) * len(block))
        assert own_memory_bytes() > before + (60 << 20)


def test_freed_memory_goes_back_to_the_system() -> None:
    """Small blocks too, that lie below one which is still in use."""
    blocks = [bytes([1]) * (64 << 10) for _ in range(1024)]
    full = psutil.Process().memory_info().rss
    del blocks[:-1]
    trim_heap()
    assert psutil.Process().memory_info().rss < full - (32 << 20)
