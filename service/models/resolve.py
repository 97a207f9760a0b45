"""From what a user calls a model to its files."""

import difflib
import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from service.models.catalog import KNOWN_MODELS, KnownFolder
from service.models.errors import ModelError
from service.models.gguf_folder import TOKENIZER_FILES, write_gguf_folder
from service.models.hub import fetch_from_hub, is_hub_id
from service.models.progress import Progress, Report
from service.models.pull import FORMAT, pull


@dataclass(frozen=True)
class ModelFiles:
    """``path`` is what the core is given: a ``.gguf`` file, or a folder with safetensors.

    ``tokenizer_folder`` holds tokenizer.json, tokenizer_config.json and mostly config.json, generation_config.json.
    """

    name: str
    path: Path
    tokenizer_folder: Path


def cache_folder() -> Path:
    """Where models and what is made from them are kept: ``$XDG_CACHE_HOME/sluicegate``."""
    return platformdirs.user_cache_path("sluicegate")


def resolve_model(model: str, report: Report, needs_weights: bool = True) -> ModelFiles:
    """The files of ``model``: a known name, a folder, a ``.gguf`` file or a hub id, in this order; fetched if need be.

    Unless it ``needs_weights``, a folder with a tokenizer is enough. Raises ModelError, which says what was looked for.
    """
    try:
        return _resolve(model, report, needs_weights)
    except (OSError, RuntimeError) as error:  # the latter for a home that is nobody's: ~who
        raise ModelError(f"no model {model!r}: {error}") from error


def _resolve(model: str, report: Report, needs_weights: bool) -> ModelFiles:
    if model in KNOWN_MODELS:
        known = KNOWN_MODELS[model]
        folder = pull(known, cache_folder() / "models", report)
        weights = folder if isinstance(known, KnownFolder) else folder / known.file_name
        return ModelFiles(known.name, weights, folder)
    path = Path(model).expanduser()
    if not needs_weights and (path / "tokenizer.json").is_file():
        return ModelFiles(path.resolve().name, path, path)
    if path.is_dir():
        return _from_folder(path, report)
    if path.is_file():
        return ModelFiles(path.stem, path, _tokenizer_of(path, report))
    if is_hub_id(model):
        folder = fetch_from_hub(model, report)
        return ModelFiles(model, folder, folder)
    raise ModelError(f"no model {model!r}: no such file or folder, {_alternatives()}{_nearest(model)}")


def _alternatives() -> str:
    return f"not a hub id (ORG/NAME), not one of the known names ({', '.join(KNOWN_MODELS)})"


def _nearest(model: str) -> str:
    near = difflib.get_close_matches(model[:100], KNOWN_MODELS, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _from_folder(folder: Path, report: Report) -> ModelFiles:
    name = folder.resolve().name
    has_tokenizer = all((folder / file).is_file() for file in TOKENIZER_FILES)
    if any(folder.glob("*.safetensors")):
        if not has_tokenizer:
            raise ModelError(f"{folder} lacks one of {', '.join(TOKENIZER_FILES)}")
        return ModelFiles(name, folder, folder)
    ggufs = sorted(folder.glob("*.gguf"))
    if len(ggufs) != 1:
        which = f"has {', '.join(gguf.name for gguf in ggufs)}: name the one to use" if ggufs else "has neither"
        raise ModelError(f"{folder} should hold *.safetensors or one .gguf file; it {which}")
    return ModelFiles(name, ggufs[0], folder if has_tokenizer else _tokenizer_of(ggufs[0], report))


def _tokenizer_of(gguf: Path, report: Report) -> Path:
    """A folder with the files made from ``gguf``.

    In the cache, not beside the file: a model's folder may be shared or read-only, and is not ours. The file's
    identity is its path, size and time of change, so that another file of the same name gets files of its own.
    """
    stat = gguf.stat()
    identity = f"{FORMAT} {gguf.resolve()} {stat.st_size} {stat.st_mtime_ns}"
    key = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
    folder = cache_folder() / "tokenizers" / f"{gguf.stem}-{key}"
    if not folder.is_dir():
        report(Progress(f"reading the tokenizer of {gguf.name}"))
        _make_folder(folder, lambda new: write_gguf_folder(gguf, new))
    return folder


def _make_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """``folder`` appears filled or not at all; whoever is second to make it keeps the first one's."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent, ignore_cleanup_errors=True) as work:
            new = Path(work) / folder.name
            new.mkdir()
            fill(new)
            new.rename(folder)
    except OSError as error:
        if not folder.is_dir():
            raise ModelError(f"could not write {folder}: {error}") from error
