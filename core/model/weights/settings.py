"""What a model file says of its model, each value with the type it must have."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from core.model.weights.regular_file import read_regular_file
from core.model.weights.weight_source import ModelLoadError

MAX_JSON_BYTES = 1 << 26
"""The index of a large model's files has some MB."""


class UnsupportedChoiceError(ModelLoadError):
    """A file asks for one of several ways to compute, and it is not one of ours."""


_MAX_COUNT = 2**31 - 1
_MAX_NUMBER = 1e30
_MAX_SHOWN_CHARS = 100


@dataclass(frozen=True)
class Settings:
    """``place`` stands before a key in every ModelLoadError, ``prefix`` is part of the key. A null counts as absent."""

    place: str
    values: Mapping[str, Any]
    prefix: str = ""

    def or_else(self, defaults: Mapping[str, Any]) -> "Settings":
        """With ``defaults`` for keys that are not there at all."""
        return replace(self, values={**defaults, **self.values})

    def count(self, key: str, default: int | None = None, least: int = 1, most: int = _MAX_COUNT) -> int:
        """Of things or elements: an integer."""
        value = self._find(key, default)
        if type(value) is not int or not least <= value <= most:
            self.reject(key, f"must be an integer in [{least}, {most}]", value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive one."""
        value = self._find(key, default)
        if type(value) not in (int, float) or not 0 < value <= _MAX_NUMBER:
            self.reject(key, f"must be a number > 0 and at most {_MAX_NUMBER:g}", value)
        return float(value)

    def number_if_any(self, key: str, default: float | None = None) -> float | None:
        """A positive one, or None where there is none."""
        value = self.values.get(self.prefix + key, default)
        return None if value is None else self.number(key, default)

    def mapping(self, key: str) -> dict[str, Any]:
        """A JSON object, empty where there is none."""
        value = self.values.get(self.prefix + key) or {}
        if not isinstance(value, dict):
            self.reject(key, "must be a JSON object", value)
        return value

    def choice(self, key: str, allowed: tuple[Any, ...], default: Any = None) -> Any:
        """One of ``allowed``. Raises UnsupportedChoiceError."""
        value = self.values.get(self.prefix + key)
        value = default if value is None else value
        if value not in allowed:
            raise UnsupportedChoiceError(self._complaint(key, f"must be one of {', '.join(map(str, allowed))}", value))
        return value

    def reject(self, key: str, bound: str, value: Any) -> NoReturn:
        raise ModelLoadError(self._complaint(key, bound, value))

    def _complaint(self, key: str, bound: str, value: Any) -> str:
        return f"{self.place}{self.prefix}{key} {bound}, got {value!r:.{_MAX_SHOWN_CHARS}}"

    def _find(self, key: str, default: Any) -> Any:
        value = self.values.get(self.prefix + key)
        value = default if value is None else value
        if value is None:
            raise ModelLoadError(f"{self.place}{self.prefix}{key} is missing")
        return value


def read_settings(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Settings:
    """Those of a JSON file. Raises ModelLoadError."""
    return Settings(f"{path}: ", read_json(path, max_bytes=max_bytes))


def read_json(path: Path, kind: type = dict, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """A JSON object, or a list if that is the ``kind``. Raises ModelLoadError."""
    content = read_regular_file(path, max_bytes)
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path}: cannot be read: {error}") from error
    if not isinstance(values, kind):
        wanted = "object" if kind is dict else kind.__name__
        raise ModelLoadError(f"{path}: must be a JSON {wanted}, got {type(values).__name__}")
    return values
