"""Reading the JSON files of a model folder."""

import json
from pathlib import Path
from typing import Any

from service.models.errors import ModelError


def read_json(path: Path) -> dict[str, Any]:
    """The object in ``path``; empty if there is no such file. Raises ModelError if the file is no JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content


def read_config(folder: Path) -> dict[str, Any]:
    """config.json, with the language model's own part on top where a multimodal model has one."""
    config = read_json(folder / "config.json")
    text_config: dict[str, Any] = config.get("text_config", {})
    return config | text_config
