"""Recorded genuine messages decode to what their index says and encode back to the same bytes."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from core.wire.codec import Decoder, Encoder
from core.wire.messages import (
    ENGINE_CORE_DEAD,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineReadyResponse,
    FinishReason,
    RequestType,
    UtilityOutput,
)
from core.wire.tensor import Tensor
from tests.core.wire.recorded import Recording, raw_frame, recording, recordings

GENUINE_PYTHON = [
    found
    for found in recordings()
    if found.name.startswith(("core_", "py_")) and found.message_type is not EngineReadyResponse
]


@pytest.mark.parametrize("recorded", recordings(), ids=str)
def test_decodes_to_what_the_index_says(recorded: Recording) -> None:
    """Every recorded message decodes to its content, array frames included."""
    message = Decoder(recorded.message_type).decode(recorded.frames)
    assert_same(recorded.decoded[0], message, recorded.frames)
    for described, frame in zip(recorded.decoded[1:], recorded.frames[1:], strict=True):
        assert described["$raw_len"] == len(frame)
        assert frame.hex().startswith(described["$hex_head"])


@pytest.mark.parametrize("recorded", GENUINE_PYTHON, ids=str)
def test_encodes_to_the_genuine_bytes(recorded: Recording) -> None:
    """A decoded message of the genuine Python programs encodes to the very frames they sent."""
    message = Decoder(recorded.message_type).decode(recorded.frames)
    assert [bytes(frame) for frame in Encoder().encode(message)] == recorded.frames


def test_ready_response_has_the_genuine_keys() -> None:
    """What a genuine core says of itself is kept, and nothing is added to it."""
    (payload,) = recording("core_ready_response").frames
    again = Encoder().encode(Decoder(EngineReadyResponse).decode([payload]))[0]
    assert msgspec.msgpack.decode(again) == msgspec.msgpack.decode(payload)


def test_core_dead_is_the_recorded_frame() -> None:
    """ENGINE_CORE_DEAD is the one frame a dying genuine core sends."""
    assert raw_frame("core_dead.0.bin") == ENGINE_CORE_DEAD


@pytest.mark.parametrize(
    ("name", "request_type"),
    [("py_add_chat_stream", RequestType.ADD), ("py_abort", RequestType.ABORT), ("rs_util_sleep", RequestType.UTILITY)],
)
def test_type_frame(name: str, request_type: RequestType) -> None:
    """The first frame at the core is the request type's one byte."""
    assert RequestType(recording(name).head[-1]) is request_type


def test_nine_elements_take_the_defaults() -> None:
    """A request cut after its required fields decodes; the rest takes the declared defaults."""
    request = Decoder(EngineCoreRequest).decode(recording("own_add_short").frames)
    assert (request.client_index, request.priority, request.abort_immediately) == (0, 0, False)
    assert request.sampling_params is not None
    assert request.sampling_params.max_tokens == 2


def test_surplus_elements_are_ignored() -> None:
    """The 22 elements of vLLM 0.33 decode; what 0.25.1 does not know is dropped."""
    frames = recording("rs33_add").frames
    assert len(msgspec.msgpack.decode(frames[0])) == 22
    assert Decoder(EngineCoreRequest).decode(frames).request_id == "cmpl-eb91ea54-b196b933"


def test_outputs_are_written_in_full() -> None:
    """Outputs carry all 13 and 8 elements, as the genuine core writes them: defaults are not left out."""
    message = EngineCoreOutputs(outputs=[EngineCoreOutput("a", [1])], timestamp=1.0)
    document = msgspec.msgpack.decode(Encoder().encode(message)[0])
    assert (len(document), len(document[1][0])) == (8, 13)


def test_finish_output_equals_the_genuine_one() -> None:
    """An abort output built from scratch has the bytes of the genuine core's."""
    timestamp = recording("core_out_abort_by_sigterm_c0").decoded[0][3]
    output = EngineCoreOutput("term#1", [], finish_reason=FinishReason.ABORT)
    message = EngineCoreOutputs(outputs=[output], timestamp=timestamp, finished_requests=["term#1"])
    assert bytes(Encoder().encode(message)[0]) == recording("core_out_abort_by_sigterm_c0").frames[0]


def test_utility_answer_equals_the_genuine_one() -> None:
    """A utility answer built from scratch has the bytes of the genuine core's; ``call_id`` takes a uint64."""
    recorded = recording("core_util_get_supported_tasks")
    answer = UtilityOutput(11699615970531611121, result=(None, ["generate"]))
    message = EngineCoreOutputs(timestamp=recorded.decoded[0][3], utility_output=answer)
    assert bytes(Encoder().encode(message)[0]) == recorded.frames[0]


def assert_same(expected: Any, actual: Any, frames: list[bytes]) -> None:
    """``actual``, a decoded message, says what ``expected``, the index's JSON, says."""
    match actual:
        case np.ndarray() | Tensor():
            assert_same_array(expected, actual, frames)
        case msgspec.Struct():
            assert_same_struct(expected, actual, frames)
        case list() | tuple():
            assert len(expected) == len(actual)
            for wanted, got in zip(expected, actual, strict=True):
                assert_same(wanted, got, frames)
        case dict():
            assert expected.keys() == {str(key) for key in actual}
            for key, got in actual.items():
                assert_same(expected[str(key)], got, frames)
        case float():
            assert math.isclose(expected, actual, rel_tol=1e-15)
        case _:
            assert expected == actual


def assert_same_struct(expected: Any, actual: msgspec.Struct, frames: list[bytes]) -> None:
    fields = msgspec.structs.fields(actual)
    if isinstance(expected, list):
        named = {field.encode_name: value for field, value in zip(fields, expected, strict=False)}
    else:
        named = expected
    known = {field.encode_name: getattr(actual, field.name) for field in fields}
    assert not named or named.keys() & known.keys()
    for name in named.keys() & known.keys():
        assert_same(named[name], known[name], frames)


def assert_same_array(expected: Any, actual: Any, frames: list[bytes]) -> None:
    dtype, shape, data = expected
    array = actual.array if isinstance(actual, Tensor) else actual
    assert dtype == (actual.dtype if isinstance(actual, Tensor) else actual.dtype.str)
    assert shape == list(array.shape)
    assert array.tobytes() == (frames[data] if isinstance(data, int) else bytes.fromhex(data["$hex"]))
