"""What no sane front end sends: recorded messages gone wrong, and what was never a message."""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
from hypothesis import strategies as st

from core.executor.fake import FAKE_MODEL
from core.utilities import Utilities
from core.wire.messages import EngineCoreRequest, RequestType, UtilityCall
from tests.core.wire.recorded import Recording, recordings

_REQUEST_ID = "request-number-0000000"
_CALL_ID = 0xC0FFEE_C0FFEE_00
"""Stand for the number that each message is given when it is sent."""
_NAMES = (_REQUEST_ID.encode(), _CALL_ID.to_bytes(8, "big"))
_DAMAGE = 0x55
"""Turns no element of a recorded request into True, which abort_immediately would be."""
_SUSPENDING = ("pause_generation", "pause_scheduler", "sleep")
"""Not faults: after them the core has good reason to be quiet."""
_ADDS = [recording for recording in recordings() if recording.message_type is EngineCoreRequest]


class BadMessage(NamedTuple):
    """``frames``, the type first. ``is_answerable``: it can be seen whose it is, so somebody waits for the answer."""

    frames: list[bytes]
    is_answerable: bool

    def __repr__(self) -> str:
        shown = b" | ".join(self.frames[:3])[:400]
        return f"BadMessage({len(self.frames)} frames, {shown!r}, {self.is_answerable})"

    def numbered(self, number: int) -> "BadMessage":
        """The same, as the one of ``number``."""
        return self._replace(frames=[_with_number(frame, number) for frame in self.frames])

    def variants(self, draw: random.Random) -> "Iterator[BadMessage]":
        """Itself, and what can happen to it behind its id: it is cut, a byte is another, its arrays are shifted."""
        yield self
        if len(self.frames) < 2:
            return
        kind, document, *arrays = self.frames
        at = draw.randint(min(_end_of_id(document), len(document)), len(document))
        yield self._replace(frames=[kind, document[:at], *arrays])
        changed = bytes(byte ^ _DAMAGE for byte in document[at : at + 1])
        yield self._replace(frames=[kind, document[:at] + changed + document[at + 1 :], *arrays])
        yield self._replace(frames=[kind, document, b"", *arrays])


def request_id_of(number: int) -> str:
    return f"request-number-{number:07}"


def call_id_of(number: int) -> int:
    return _CALL_ID + number


def _with_number(frame: bytes, number: int) -> bytes:
    frame = frame.replace(_REQUEST_ID.encode(), request_id_of(number).encode())
    return frame.replace(_CALL_ID.to_bytes(8, "big"), call_id_of(number).to_bytes(8, "big"))


def _end_of_id(document: bytes) -> int:
    """Or 0, if it has none of ours."""
    ends = (document.find(name) + len(name) for name in _NAMES if name in document)
    return max(ends, default=0)


def _nested(depth: int) -> msgspec.Raw:
    return msgspec.Raw(b"\x91" * depth + b"\xc0")


_EXTENSIONS = st.builds(msgspec.msgpack.Ext, st.sampled_from([1, 2, 3, 4, -1, 127]), st.binary(max_size=8))
_NUMBERS = st.sampled_from(
    [-(2**63), -(2**31), -1, 0, 1, 2**31, 2**32, 2**63, 2**64 - 1, float("nan"), float("inf"), -1e300, 1e-320, 0.5]
)
_SCALARS = st.one_of(
    _NUMBERS,
    st.sampled_from([None, True, False, "", "x", "x" * 5000, b"", b"\xff" * 9, [], {}]),
    st.integers(-(2**63), 2**64 - 1),
    _EXTENSIONS,
)
_LIES = st.sampled_from(
    [
        {"sender_id": "00000000", "tensor_id": 0},
        {"sender_id": "x", "tensor_id": 0},
        {"sender_id": "00000000", "tensor_id": -1},
        {"sender_id": "00000000", "tensor_id": 2**64 - 1},
        {"tensor_id": 0},
        {},
    ]
)
arrays = st.tuples(
    st.sampled_from(["float32", "bfloat16", "<f4", "|O", "object", "int64", "bool", "V8", ""]) | _SCALARS,
    st.sampled_from([[1, 4], [3, 4], [0, 4], [-1, 4], [2**40, 2**40], [1] * 65, [4], 7]) | _SCALARS,
    st.integers(-1, 4) | st.builds(msgspec.msgpack.Ext, st.just(3), st.binary(max_size=64)) | _LIES | _SCALARS,
).map(list)
anything: st.SearchStrategy[Any] = st.one_of(
    _SCALARS,
    st.lists(_SCALARS, max_size=4),
    st.dictionaries(st.sampled_from(["", "temperature", "max_tokens"]), _SCALARS, max_size=2),
    arrays,
    st.sampled_from([_nested(600), _nested(50_000)]),
)
_PARAMS = st.sampled_from(sorted({name for recording in _ADDS for name in recording.decoded[0][3]}))
_METHODS = st.sampled_from([name for name in Utilities.METHODS if name not in _SUSPENDING]) | st.text(max_size=9)


def _encode(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def _document(recording: Recording) -> list[Any]:
    document: list[Any] = msgspec.msgpack.decode(recording.frames[0])
    return [_REQUEST_ID, *document[1:]]


def _add(document: list[Any], aux: list[bytes], is_answerable: bool = True) -> BadMessage:
    # An aborted request is not answered.
    is_aborted = len(document) > 19 and document[19] is True
    return BadMessage([RequestType.ADD.value, _encode(document), *aux], is_answerable and not is_aborted)


@st.composite
def _wrong_elements(draw: st.DrawFn) -> BadMessage:
    """A recorded ADD of which some elements, sampling parameters or array frames are others."""
    recording = draw(st.sampled_from(_ADDS))
    document, aux = _document(recording), recording.frames[1:]
    for _ in range(draw(st.integers(1, 3))):
        document[draw(st.integers(1, len(document) - 1))] = draw(anything)
    if isinstance(document[3], dict) and draw(st.booleans()):
        document[3] = document[3] | {draw(_PARAMS): draw(anything)}
    return _add(document, draw(st.sampled_from([aux, [], [b""] * 3])))


@st.composite
def _wrong_arity(draw: st.DrawFn) -> BadMessage:
    recording = draw(st.sampled_from(_ADDS))
    document = _document(recording)
    kept = document[: draw(st.integers(1, len(document)))]
    return _add([*kept, *draw(st.lists(anything, max_size=3))], recording.frames[1:])


@st.composite
def _wrong_embeds(draw: st.DrawFn) -> BadMessage:
    """Prompts of embeddings: shapes, types, indices and handles that lie, values that are no numbers."""
    shape = draw(st.sampled_from([(3, FAKE_MODEL.hidden_size), (1, 3), (300, FAKE_MODEL.hidden_size), (0, 4), (4,)]))
    rows = np.full(shape, draw(st.sampled_from([1.0, float("nan"), float("inf")])), np.float32)
    data = msgspec.msgpack.Ext(3, rows.tobytes())
    embeds = draw(st.just(["float32", list(shape), data]) | st.just(["float32", list(shape), 1]) | arrays)
    document = [_REQUEST_ID, draw(st.none() | st.just([1, 2, 3])), None, {}, None, 0.0, None, None, None, embeds]
    aux = draw(st.sampled_from([[rows.tobytes()], [], [b"", rows.tobytes()], [rows.tobytes()[:-1]]]))
    return _add([*document, draw(st.none() | st.lists(st.booleans(), max_size=4))], aux)


@st.composite
def _wrong_calls(draw: st.DrawFn) -> BadMessage:
    """Calls of any method with any arguments, or with something else in place of them."""
    arguments = draw(st.lists(anything, max_size=5) | anything)
    method = draw(_METHODS | _SCALARS)
    client_index = draw(st.just(0) | _NUMBERS)
    call = [client_index, _CALL_ID, method, arguments, *draw(st.lists(_SCALARS, max_size=1))]
    # Behind a client index that is none the id cannot be read if the rest cannot.
    is_answerable = isinstance(client_index, int)
    return BadMessage([RequestType.UTILITY.value, _encode(call[: draw(st.integers(2, len(call)))])], is_answerable)


@st.composite
def _wrong_payloads(draw: st.DrawFn) -> BadMessage:
    """Any bytes or any msgpack behind any type byte."""
    kind = draw(st.sampled_from([b"\x00", b"\x01", b"\x02", b"\x03", b"\x04", b"\x05", b"\xff", b"", b"\x00\x00"]))
    payload = draw(st.binary(max_size=40) | anything.map(_encode) | st.lists(anything, max_size=4).map(_encode))
    return BadMessage([kind, payload, *draw(st.lists(st.binary(max_size=8), max_size=2))], False)


_MISPLACED = st.builds(
    lambda kind, recording: BadMessage([kind, *recording.frames], False),
    st.sampled_from([b"\x00", b"\x01", b"\x03"]),
    st.sampled_from([found for found in recordings() if found.message_type not in (EngineCoreRequest, UtilityCall)]),
)
"""Recorded messages of another type, or of the other direction."""

_SHAPELESS = st.sampled_from(
    [
        BadMessage([b""], False),
        BadMessage([b"\x00"], False),
        BadMessage([b"", b""], False),
        BadMessage([b"\x00", b""], False),
        BadMessage([b"\x00", b"\x90"], False),
        BadMessage([b""] * 1000, False),
        BadMessage([b"\x01", _encode(["unknown"]), *[b"x"] * 998], False),
        _add([_REQUEST_ID, [1], None, {}, None, 0.0, None, None, None], [b"x"] * 998),
        _add([_REQUEST_ID, [1], None, {}, None, 0.0, None, None, None, ["float32", [1, 4], 999]], [b"x" * 16] * 998),
    ]
)

bad_messages: st.SearchStrategy[BadMessage] = st.one_of(
    _wrong_elements(),
    _wrong_arity(),
    _wrong_embeds(),
    _wrong_calls(),
    _wrong_payloads(),
    _MISPLACED,
    _SHAPELESS,
)
