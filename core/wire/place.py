"""Where in a message an error is: positions turned into the names of fields.

msgspec names places by position, ``$[3].max_tokens``; people read ``EngineCoreRequest.sampling_params.max_tokens``.
"""

import functools
import re
from typing import Any

import msgspec.inspect as inspect

_SUFFIX = re.compile(r" - at (`key` in )?`\$([^`]*)`$")
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.([^.\[\]]+)")


def name_place(name: str, message_type: Any, error: str) -> str:
    """``error`` as msgspec words it, its place first: ``<name>.<field>.<field>: <what is wrong>``."""
    found = _SUFFIX.search(error)
    if found is None:
        return f"{name}: {error}"
    is_key, path = found.groups()
    return f"{name}{_named(path, _type_of(message_type))}{', a key' if is_key else ''}: {error[: found.start()]}"


@functools.cache
def _type_of(message_type: Any) -> inspect.Type:
    return inspect.type_info(message_type)


def _named(path: str, current: inspect.Type | None) -> str:
    names = []
    for position, key in _STEP.findall(path):
        name, current = _step_into(current, position, key)
        names.append(name)
    return "".join(names)


def _step_into(current: inspect.Type | None, position: str, key: str) -> tuple[str, inspect.Type | None]:
    """The name of the step from ``current`` to the part at ``position`` (or ``key``), and that part's type."""
    for candidate in current.types if isinstance(current, inspect.UnionType) else (current,):
        match candidate:
            case inspect.StructType(fields=fields, array_like=True) | inspect.NamedTupleType(fields=fields) if position:
                field = fields[int(position)]
                return f".{field.name}", field.type
            case inspect.StructType(fields=fields) if key:
                return f".{key}", next((field.type for field in fields if field.encode_name == key), None)
            case inspect.ListType(item_type=item_type) | inspect.DictType(value_type=item_type):
                return (f"[{position}]" if position else f".{key}"), item_type
    return (f"[{position}]" if position else f".{key}"), None
