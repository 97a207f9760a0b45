"""Reading the JSON files of a model folder."""

import json
import reprlib
from pathlib import Path
from typing import Any

from service.models.errors import ModelError

_MAX_HIDDEN_SIZE = 2**20
_MAX_VOCAB_SIZE = 2**22
"""Four times the largest there is; tables of this length are made."""


def read_json(path: Path) -> dict[str, Any]:
    """The object in ``path``; empty if there is no such file.

    Raises ModelError if the file cannot be read or is no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content


def read_config(folder: Path) -> dict[str, Any]:
    """config.json, with the language model's own part on top where a multimodal model has one. Raises ModelError."""
    config = read_json(folder / "config.json")
    text_config: dict[str, Any] = config.get("text_config") or {}
    if not isinstance(text_config, dict):
        raise ModelError(f"{folder / 'config.json'}: text_config must be an object, got {type(text_config).__name__}")
    return config | text_config


def read_vocab_size(folder: Path) -> int | None:
    """What config.json says of the vocabulary, if anything. Raises ModelError."""
    return _read_size(folder, "vocab_size", _MAX_VOCAB_SIZE)


def read_hidden_size(folder: Path) -> int | None:
    """The elements of a token's embedding, if config.json says them. Raises ModelError."""
    return _read_size(folder, "hidden_size", _MAX_HIDDEN_SIZE)


def holds_embedding_model(folder: Path) -> bool:
    """Whether it is a folder of sentence-transformers."""
    return (folder / "modules.json").is_file()


def _read_size(folder: Path, key: str, maximum: int) -> int | None:
    size = read_config(folder).get(key)
    if size is not None and (type(size) is not int or not 1 <= size <= maximum):
        bound = f"a whole number in [1, {maximum}]"
        raise ModelError(f"{folder / 'config.json'}: {key} must be {bound}, got {reprlib.repr(size)}")
    return size
