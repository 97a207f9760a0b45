"""What can still be read of a message that does not decode: enough to answer it.

A request whose sampling parameters are nonsense still has an id, and whoever sent it waits on that id.
"""

from typing import Any, NamedTuple

import msgspec

_ARRAY_HEADS = {0xDC: 2, 0xDD: 4}
_STRING_HEADS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Opcode to the number of length bytes that follow it."""
_CLIENT_INDEX_OF_REQUEST = 11
_CLIENT_INDEX_OF_CALL, _CALL_ID = 0, 1


class Salvaged(NamedTuple):
    """Whom to answer (the request's or the call's id), and on which output socket. None: unreadable."""

    id: Any
    client_index: int | None


def salvage_request(document: bytes) -> Salvaged:
    """The string id of an ADD, also of one that is cut off after it."""
    return Salvaged(_first_string(document), _integer_at(_elements(document), _CLIENT_INDEX_OF_REQUEST))


def salvage_call(document: bytes) -> Salvaged:
    """The integer call id of a UTILITY that is well-formed msgpack."""
    elements = _elements(document)
    return Salvaged(_integer_at(elements, _CALL_ID), _integer_at(elements, _CLIENT_INDEX_OF_CALL))


def _elements(document: bytes) -> list[Any]:
    try:
        return msgspec.msgpack.decode(document, type=list[Any])
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
        return []


def _integer_at(elements: list[Any], position: int) -> int | None:
    found = elements[position] if position < len(elements) else None
    return found if type(found) is int else None


def _first_string(document: bytes) -> str | None:
    """The first element of a msgpack array, if it is a string; what follows may be anything."""
    try:
        _, start = _read_head(document, 0, 0x90, 0x0F, _ARRAY_HEADS)
        length, start = _read_head(document, start, 0xA0, 0x1F, _STRING_HEADS)
        return document[start : start + length].decode() if start + length <= len(document) else None
    except (IndexError, KeyError, UnicodeDecodeError):
        return None


def _read_head(document: bytes, at: int, fixed: int, mask: int, heads: dict[int, int]) -> tuple[int, int]:
    """The length a msgpack head gives, and where its content starts. KeyError: another kind of head."""
    opcode = document[at]
    if opcode & ~mask == fixed:
        return opcode & mask, at + 1
    end = at + 1 + heads[opcode]
    return int.from_bytes(document[at + 1 : end], "big"), end
