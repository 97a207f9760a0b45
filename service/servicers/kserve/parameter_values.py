"""Values of parameters, which may be written as strings: ``"0.5"``, ``"true"``, ``"[1, 2]"``."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_Number = TypeVar("_Number", int, float)

MAX_JSON_CHARS = 2**20
"""While a text is parsed no other thread runs."""


class NotThatError(ValueError):
    """A value is not what it should be; the text says what that is."""


def as_int(value: Any) -> int:
    if isinstance(value, int | str) and not isinstance(value, bool):
        return _converted(int, value, "must be a whole number")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise NotThatError("must be a whole number")


def as_float(value: Any) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        return _converted(float, value, "must be a number")
    raise NotThatError("must be a number")


def as_bool(value: Any) -> bool:
    spelled = str(value).lower()
    if isinstance(value, bool | str | int) and spelled in ("true", "false", "1", "0"):
        return spelled in ("true", "1")
    raise NotThatError("must be true or false")


def as_text(value: Any) -> str:
    """JSON can write half of a surrogate pair, which is no text."""
    if isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value):
        return value
    raise NotThatError("must be text")


def as_list(value: Any) -> list[Any]:
    parsed = _parsed(value)
    if isinstance(parsed, list):
        return parsed
    raise NotThatError("must be a list")


def as_object(value: Any) -> Mapping[str, Any]:
    parsed = _parsed(value)
    if isinstance(parsed, dict):
        return parsed
    raise NotThatError("must be a JSON object")


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if len(value) > MAX_JSON_CHARS:
        raise NotThatError(f"must have at most {MAX_JSON_CHARS} characters, has {len(value)}")
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise NotThatError(f"must be JSON ({error})") from error


def _converted(kind: Callable[[Any], _Number], value: Any, bound: str) -> _Number:
    try:
        return kind(value)
    except (ValueError, OverflowError) as error:
        raise NotThatError(bound) from error
