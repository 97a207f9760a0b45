"""Profiles: what is recorded, and where it may be written."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from core.executor.profiler import MAX_STEPS, Profiler


def run_steps(profiler: Profiler, *sizes: int) -> None:
    """One step for each size, in which a tensor of that size is made."""
    for size in sizes:
        with profiler.step():
            torch.ones(size)


def sizes_in(trace: Path) -> set[int]:
    """Of the tensors that were made while it recorded."""
    events = json.loads(trace.read_text())["traceEvents"]
    shapes = [event["args"].get("Input Dims") for event in events if event.get("name") == "aten::fill_"]
    return {dims[0] for shape in shapes if shape for dims in shape if dims}


def test_steps_are_recorded(tmp_path: Path) -> None:
    """Those after the skipped ones, at most as many as asked for; what is outside of steps and profiles is not."""
    profiler = Profiler(tmp_path / "new" / "folder")
    run_steps(profiler, 1)
    profiler.start("mine", 1, 2)
    run_steps(profiler, 2, 3, 4, 5)
    profiler.stop()
    run_steps(profiler, 6)
    (trace,) = (tmp_path / "new" / "folder").iterdir()
    assert trace.name.startswith("mine-")
    assert trace.name.endswith(".trace.json")
    assert sizes_in(trace) == {3, 4}


def test_each_profile_has_its_own_file(tmp_path: Path) -> None:
    """Of the same prefix, or of none, one after the other."""
    profiler = Profiler(tmp_path)
    for prefix in ("a", "a", None, ""):
        profiler.start(prefix, 0, None)
        run_steps(profiler, 1)
        profiler.stop()
    assert sorted(path.name.split("-")[0] for path in tmp_path.iterdir()) == ["a", "a", "profile", "profile"]


@pytest.mark.parametrize("prefix", ["../a", "a/b", "/a", ".", "..", ".a", "a\\b", "a\n", "a\0", "ä", " ", "a" * 101])
def test_the_prefix_stays_in_the_folder(tmp_path: Path, prefix: str) -> None:
    """No separators, no dots in front, nothing that some system reads in its own way."""
    profiler = Profiler(tmp_path / "profiles")
    with pytest.raises(ValueError, match="prefix must be at most 100 of"):
        profiler.start(prefix, 0, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ((None, -1, None), r"delay_iterations must be in \[0, 1000000\], got -1"),
        ((None, 0, 0), rf"max_iterations must be in \[1, {MAX_STEPS}\], got 0"),
        ((None, 0, MAX_STEPS + 1), rf"max_iterations must be in \[1, {MAX_STEPS}\], got {MAX_STEPS + 1}"),
    ],
)
def test_bounds(tmp_path: Path, settings: Any, words: str) -> None:
    """What is recorded is held in memory."""
    with pytest.raises(ValueError, match=words):
        Profiler(tmp_path).start(*settings)


def test_one_at_a_time(tmp_path: Path) -> None:
    """A second start, an end without a start, and one without a step are errors; after each it can be started."""
    profiler = Profiler(tmp_path)
    with pytest.raises(RuntimeError, match="no profile was started"):
        profiler.stop()
    profiler.start(None, 0, None)
    with pytest.raises(RuntimeError, match="being recorded already"):
        profiler.start(None, 0, None)
    with pytest.raises(RuntimeError, match="no step was recorded"):
        profiler.stop()
    profiler.start(None, 0, None)
    run_steps(profiler, 1)
    profiler.close()
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder() -> None:
    """Profiling is off, and the error names the option."""
    with pytest.raises(RuntimeError, match="start the core with --profile-dir"):
        Profiler(None).start(None, 0, None)
