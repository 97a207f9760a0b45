"""The memory that cgroups of both versions leave."""

import math
from pathlib import Path

from core.model.cgroup import memory_left_bytes


def write(folder: Path, **files: str) -> None:
    """``memory_max`` stands for ``memory.max``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("memory_", "memory.", 1)).write_text(f"{text}\n")


def test_cached_files_are_no_memory_in_use(tmp_path: Path) -> None:
    """The kernel lets go of them before it kills anybody: a model's file that was read does not count."""
    stat = "anon 200\ninactive_file 600\nactive_file 100"
    write(tmp_path, memory_max="1000", memory_current="900", memory_stat=stat)
    assert memory_left_bytes(tmp_path) == 700


def test_the_tightest_of_all_counts(tmp_path: Path) -> None:
    """The process's own, each around it, and what throttles it."""
    own, root = tmp_path / "own", tmp_path / "root"
    own.write_text("1:name=systemd:/elsewhere\n0::/a/b\n")
    for folder, limit in ((root, "900"), (root / "a", "500"), (root / "a" / "b", "700")):
        write(folder, memory_max=limit, memory_current="100")
    assert memory_left_bytes(root, own) == 400
    write(root / "a" / "b", memory_high="300")
    assert memory_left_bytes(root, own) == 200


def test_the_first_version(tmp_path: Path) -> None:
    """Its files have other names, and its folder the controller's; a path of the host's is not there in a container."""
    own = tmp_path / "own"
    own.write_text("4:cpuset,memory:/box\n0::/\n")
    limit, usage, stat = "1000", "700", "inactive_file 1\ntotal_inactive_file 300"
    root = tmp_path / "memory"
    write(root, memory_limit_in_bytes="9223372036854771712", memory_usage_in_bytes="5000")
    assert memory_left_bytes(tmp_path, own) > 1 << 60
    write(root / "box", memory_limit_in_bytes=limit, memory_usage_in_bytes=usage, memory_stat=stat)
    assert memory_left_bytes(tmp_path, own) == 600


def test_without_a_limit_everything_is_left(tmp_path: Path) -> None:
    """No file, or one that says so; and never less than nothing."""
    assert memory_left_bytes(tmp_path) == math.inf
    write(tmp_path, memory_max="max", memory_current="400")
    assert memory_left_bytes(tmp_path) == math.inf
    write(tmp_path, memory_max="300")
    assert memory_left_bytes(tmp_path) == 0
