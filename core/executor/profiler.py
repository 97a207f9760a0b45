"""Traces of steps, in files for https://ui.perfetto.dev and chrome://tracing. All on the thread that runs the model."""

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.profiler import profile

logger = logging.getLogger(__name__)

MAX_STEPS = 1000
"""Longest recording: it is held in memory, about a thousand events for each step."""
MAX_SKIPPED = 10**6
_PREFIX = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


class Profiler:
    """Records one profile at a time into ``folder``, which is made when needed; None: profiling is not allowed.

    ``suffix``: of the files' names, to tell ranks apart.
    """

    def __init__(self, folder: Path | None, suffix: str = "") -> None:
        self._suffix = suffix
        self._folder = folder
        if folder is not None:
            _import_what_a_profile_needs()
        self._recording: _Recording | None = None

    def start(self, prefix: str | None, num_skipped: int, max_steps: int | None) -> None:
        """Raises ValueError for a setting that is not allowed, RuntimeError without a folder or while one is on."""
        if self._folder is None:
            raise RuntimeError("profiling is off: start the core with --profile-dir")
        if self._recording is not None:
            raise RuntimeError("a profile is being recorded already")
        if prefix and not _PREFIX.fullmatch(prefix):
            allowed = "at most 100 of A-Z a-z 0-9 . _ - and not begin with a dot"
            raise ValueError(f"prefix must be {allowed}, got {prefix[:101]!r}")
        _check("delay_iterations", num_skipped, 0, MAX_SKIPPED)
        _check("max_iterations", MAX_STEPS if max_steps is None else max_steps, 1, MAX_STEPS)
        moment = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns() % 10**9:09}"
        name = f"{prefix or 'profile'}-{moment}{self._suffix}.trace.json"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._recording = _Recording(self._folder / name, num_skipped, max_steps or MAX_STEPS)
        logger.info("profiling, to %s", self._recording.path)

    def stop(self) -> None:
        """Write the file. Raises RuntimeError if nothing was started or no step came, OSError if it cannot be."""
        recording, self._recording = self._recording, None
        if recording is None:
            raise RuntimeError("no profile was started")
        recording.save()
        logger.info("profile of %d steps written to %s", recording.num_steps, recording.path)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around each step."""
        if self._recording is not None:
            self._recording.begin_step()
        yield
        if self._recording is not None:
            self._recording.end_step()

    def close(self) -> None:
        """Lose what is being recorded."""
        if self._recording is not None:
            logger.warning("the profile that was being recorded is lost")
            self._recording.end()


class _Recording:
    """Of ``max_steps`` steps, after ``num_skipped`` others."""

    def __init__(self, path: Path, num_skipped: int, max_steps: int) -> None:
        self.path = path
        self.num_steps = 0
        self._num_skipped = num_skipped
        self._max_steps = max_steps
        self._profile: Any = None
        self._runs = False

    def begin_step(self) -> None:
        if self._num_skipped > 0:
            self._num_skipped -= 1
        elif self._profile is None:
            self._profile = profile(record_shapes=True)
            self._profile.start()
            self._runs = True

    def end_step(self) -> None:
        if self._runs:
            self.num_steps += 1
            if self.num_steps == self._max_steps:
                self.end()

    def end(self) -> None:
        if self._runs:
            self._runs = False
            self._profile.stop()

    def save(self) -> None:
        self.end()
        if self._profile is None:
            raise RuntimeError("nothing to write: no step was recorded")
        self._profile.export_chrome_trace(str(self.path))


def _import_what_a_profile_needs() -> None:
    """Hundreds of modules, two seconds: now, and not while requests run."""
    with profile():
        pass


def _check(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{field} must be in [{low}, {high}], got {value}")
