"""What can still be read of a message that does not decode: enough to answer it.

A request whose sampling parameters are nonsense still has an id, and whoever sent it waits on that id.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

_ARRAY_HEADS = {0xDC: 2, 0xDD: 4}
_STRING_HEADS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Opcode to the number of length bytes that follow it."""
_INTEGER_HEADS = {0xCC: (1, False), 0xCD: (2, False), 0xCE: (4, False), 0xCF: (8, False)}
_INTEGER_HEADS |= {0xD0: (1, True), 0xD1: (2, True), 0xD2: (4, True), 0xD3: (8, True)}
"""Opcode to the number of bytes that follow it, and whether they have a sign."""
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
    """The integer call id of a UTILITY, also of one that is cut off or nonsense after it."""
    if elements := _elements(document):
        return Salvaged(_integer_at(elements, _CALL_ID), _integer_at(elements, _CLIENT_INDEX_OF_CALL))
    client_index, call_id, *_ = (*_leading_integers(document), None, None)
    return Salvaged(call_id, client_index)


def _elements(document: bytes) -> list[msgspec.Raw]:
    """Each unread, so that what is wrong in one does not hide the others."""
    try:
        return msgspec.msgpack.decode(document, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
        return []


def _integer_at(elements: list[msgspec.Raw], position: int) -> int | None:
    try:
        return msgspec.msgpack.decode(elements[position], type=int)
    except (msgspec.MsgspecError, IndexError):
        return None


def _first_string(document: bytes) -> str | None:
    """The first element of a msgpack array, if it is a string; what follows may be anything."""
    try:
        _, start = _read_head(document, 0, 0x90, 0x0F, _ARRAY_HEADS)
        length, start = _read_head(document, start, 0xA0, 0x1F, _STRING_HEADS)
        return document[start : start + length].decode() if start + length <= len(document) else None
    except (IndexError, KeyError, UnicodeDecodeError):
        return None


def _leading_integers(document: bytes) -> Iterator[int]:
    """The integers that a msgpack array begins with; what follows may be anything."""
    try:
        length, at = _read_head(document, 0, 0x90, 0x0F, _ARRAY_HEADS)
        for _ in range(length):
            integer, at = _read_integer(document, at)
            yield integer
    except (IndexError, KeyError):
        return


def _read_integer(document: bytes, at: int) -> tuple[int, int]:
    """The integer, and where it ends. KeyError: something else, IndexError: it is cut off."""
    opcode = document[at]
    if opcode < 0x80 or opcode >= 0xE0:
        return opcode if opcode < 0x80 else opcode - 0x100, at + 1
    num_bytes, has_sign = _INTEGER_HEADS[opcode]
    end = at + 1 + num_bytes
    if end > len(document):
        raise IndexError(end)
    return int.from_bytes(document[at + 1 : end], "big", signed=has_sign), end


def _read_head(document: bytes, at: int, fixed: int, mask: int, heads: dict[int, int]) -> tuple[int, int]:
    """The length a msgpack head gives, and where its content starts. KeyError: another kind of head."""
    opcode = document[at]
    if opcode & ~mask == fixed:
        return opcode & mask, at + 1
    end = at + 1 + heads[opcode]
    return int.from_bytes(document[at + 1 : end], "big"), end
