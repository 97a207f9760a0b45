"""What no sane core sends: recorded outputs gone wrong."""

import math
import random
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import strategies as st

from core.wire.messages import EngineCoreOutputs
from tests.core.bad_messages import anything, arrays
from tests.core.wire.recorded import recordings

CORE_ID = "0000000-00000000"
"""Stands for the id of the request in the core, which is as long."""
_TOKEN_ID = 65
_NEW_LOGPROBS, _PROMPT_LOGPROBS = 2, 3
_OUTPUTS = [found for found in recordings() if found.message_type is EngineCoreOutputs and found.decoded[0][1]]


def addressed(frames: list[bytes], core_id: str) -> list[bytes]:
    """``frames`` about the request that the core knows as ``core_id``."""
    return [frame.replace(CORE_ID.encode(), core_id.encode()) for frame in frames]


def variants(frames: list[bytes], draw: random.Random) -> Iterator[list[bytes]]:
    """``frames``, cut, with a byte changed, with an array less and with one more."""
    document, *arrays = frames
    at = draw.randrange(len(document))
    yield frames
    yield [document[:at], *arrays]
    yield [document[:at] + bytes([draw.randrange(256)]) + document[at + 1 :], *arrays]
    yield [document, *arrays[1:]]
    yield [document, b"", *arrays]


def _zeros(dtype: str, item_bytes: int, shape: list[int]) -> list[Any]:
    """An array that is well-formed."""
    return [dtype, shape, msgspec.msgpack.Ext(3, bytes(item_bytes * math.prod(shape)))]


_SHAPES = st.lists(st.integers(0, 3), min_size=1, max_size=3)
_THREE_SHAPES = st.just(([1, 3], [1, 3], [1])) | st.tuples(_SHAPES, _SHAPES, _SHAPES)
_LOGPROBS = _THREE_SHAPES.map(lambda s: [_zeros("<i4", 4, s[0]), _zeros("<f4", 4, s[1]), _zeros("<i8", 8, s[2])])
_PROMPT = _THREE_SHAPES.map(lambda s: [_zeros("int32", 4, s[0]), _zeros("float32", 4, s[1]), _zeros("int32", 4, s[2])])
_NONSENSE = st.lists(arrays, min_size=2, max_size=4)


@st.composite
def bad_outputs(draw: st.DrawFn) -> list[bytes]:
    """The frames of a recorded message of which some elements, or those of an output in it, are others."""
    recording = draw(st.sampled_from(_OUTPUTS))
    message: list[Any] = msgspec.msgpack.decode(recording.frames[0])
    output = message[1][0]
    output[:2] = CORE_ID, [_TOKEN_ID]
    if draw(st.booleans()):
        output[_NEW_LOGPROBS] = draw(_LOGPROBS | _NONSENSE)
    if draw(st.booleans()):
        output[_PROMPT_LOGPROBS] = draw(_PROMPT | _NONSENSE)
    for _ in range(draw(st.integers(0, 2))):
        output[draw(st.integers(0, len(output) - 1))] = draw(anything)
    if draw(st.booleans()):
        message[draw(st.integers(0, len(message) - 1))] = draw(anything)
    kept = message[: draw(st.integers(1, len(message)))] if draw(st.booleans()) else message
    return [msgspec.msgpack.encode(kept), *recording.frames[1:]]
