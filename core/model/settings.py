"""What a model file says of its model, each value with the type it must have."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from core.model.weight_source import ModelLoadError

_MAX_COUNT = 2**31 - 1
_MAX_NUMBER = 1e30
_MAX_SHOWN_CHARS = 100


@dataclass(frozen=True)
class Settings:
    """``place`` stands before a key in every ModelLoadError, ``prefix`` is part of the key. A null counts as absent."""

    place: str
    values: Mapping[str, Any]
    prefix: str = ""

    def count(self, key: str, default: int | None = None) -> int:
        """Of things or elements: an integer, at least 1."""
        value = self._find(key, default)
        if type(value) is not int or not 1 <= value <= _MAX_COUNT:
            self.reject(key, f"must be an integer in [1, {_MAX_COUNT}]", value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive one."""
        value = self._find(key, default)
        if type(value) not in (int, float) or not 0 < value <= _MAX_NUMBER:
            self.reject(key, f"must be a number > 0 and at most {_MAX_NUMBER:g}", value)
        return float(value)

    def choice(self, key: str, allowed: tuple[Any, ...], default: Any = None) -> Any:
        """One of ``allowed``."""
        value = self.values.get(self.prefix + key)
        value = default if value is None else value
        if value not in allowed:
            self.reject(key, f"must be one of {', '.join(map(str, allowed))}", value)
        return value

    def reject(self, key: str, bound: str, value: Any) -> NoReturn:
        raise ModelLoadError(f"{self.place}{self.prefix}{key} {bound}, got {value!r:.{_MAX_SHOWN_CHARS}}")

    def _find(self, key: str, default: Any) -> Any:
        value = self.values.get(self.prefix + key)
        value = default if value is None else value
        if value is None:
            raise ModelLoadError(f"{self.place}{self.prefix}{key} is missing")
        return value
