"""Arrays out of band, and what happens to a message that is not one."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.wire.codec import INLINE_BELOW_BYTES, MAX_ERROR_CHARS, Decoder, Encoder, WireError
from core.wire.messages import (
    EngineCoreOutput,
    EngineCoreRequest,
    EngineHello,
    EngineInit,
    EngineReadyResponse,
    LogprobsLists,
    UtilityCall,
)
from core.wire.tensor import Tensor
from tests.core.wire.recorded import Recording, recordings

Ext = msgspec.msgpack.Ext
REQUEST = ["id", [1, 2], None, {"max_tokens": 2}, None, 1.0, None, None, None]
MESSAGE_TYPES = [EngineCoreRequest, EngineCoreOutput, UtilityCall, EngineHello, EngineInit, EngineReadyResponse]


def request_with(position: int, value: object) -> bytes:
    """A request's document with one element replaced, the elements up to it filled in."""
    tail = [None, None, 0, 0, 0]
    elements = [*REQUEST, *tail][: max(len(REQUEST), position + 1)]
    elements[position] = value
    return msgspec.msgpack.encode(elements)


def decode_request(document: bytes, *arrays: bytes) -> EngineCoreRequest:
    return Decoder(EngineCoreRequest).decode([document, *arrays])


def message_of_error(document: bytes, *arrays: bytes) -> str:
    with pytest.raises(WireError) as caught:
        decode_request(document, *arrays)
    return str(caught.value)


@pytest.mark.parametrize(
    ("position", "value", "place"),
    [
        (0, 1.5, "EngineCoreRequest.request_id: "),
        (1, [1, "x"], "EngineCoreRequest.prompt_token_ids[1]: "),
        (3, {"max_tokens": "x"}, "EngineCoreRequest.sampling_params.max_tokens: "),
        (3, {"stop_token_ids": [1, "x"]}, "EngineCoreRequest.sampling_params.stop_token_ids[1]: "),
        (3, {"_eos_token_id": "x"}, "EngineCoreRequest.sampling_params._eos_token_id: "),
        (3, {"structured_outputs": {"regex": 1}}, "EngineCoreRequest.sampling_params.structured_outputs.regex: "),
        (3, {"logit_bias": {5: "x"}}, "EngineCoreRequest.sampling_params.logit_bias[...]: "),
        (3, {"logit_bias": {"a": 1.0}}, "EngineCoreRequest.sampling_params.logit_bias, a key: "),
        (3, {1: 2}, "EngineCoreRequest.sampling_params, a key: "),
        (6, ["name", "x"], "EngineCoreRequest.lora_request.lora_int_id: "),
        (11, "x", "EngineCoreRequest.client_index: "),
    ],
)
def test_errors_name_the_place(position: int, value: object, place: str) -> None:
    """A wrong value is reported with the names of the fields that lead to it."""
    assert message_of_error(request_with(position, value)).startswith(place)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"", "truncated"),
        (b"\xc1", "malformed"),
        (msgspec.msgpack.encode(REQUEST)[:-1], "truncated"),
        (msgspec.msgpack.encode(REQUEST) + b"\x00", "trailing characters"),
        (msgspec.msgpack.encode(REQUEST[:8]), "at least length 9"),
        (msgspec.msgpack.encode({"request_id": "x"}), "Expected `array`"),
        (b"\x99\xa2\xff\xfe" + b"\xc0" * 8, "UTF-8"),
        (b"\x99\xa1a\xc0" + b"\x91" * 100_000, "recursion"),
        (b"\x99\xa1a\xdd\xff\xff\xff\xff", "truncated"),
        (request_with(2, [Ext(1, b"x")]), "extension 1 (pickle) is refused"),
        (request_with(4, Ext(2, b"x")), "extension 2 (cloudpickle) is refused"),
        (request_with(4, Ext(77, b"x")), "extension 77 (unknown) is refused"),
        (request_with(4, Ext(-1, b"xxx")), "timestamp"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_message(document: bytes, words: str) -> None:
    """Broken, cut, too deep or pickled documents raise WireError and say what is wrong."""
    assert words in message_of_error(document)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (["float32", [2], Ext(3, b"1234")], "needs 8 bytes, got 4"),
        (["float32", [2**62, 2**62], Ext(3, b"1234")], "got 4"),
        (["float32", [2**63, 0], Ext(3, b"")], "dimension"),
        (["float32", [-1], Ext(3, b"")], "sizes must be integers >= 0"),
        (["float32", [1.0], Ext(3, b"1234")], "sizes must be integers >= 0"),
        (["float32", [1] * 65, Ext(3, b"1234")], "at most 64 sizes"),
        (["float32", 1, Ext(3, b"1234")], "at most 64 sizes"),
        (["float32", [1], 0], "frame index in [1, 1]"),
        (["float32", [1], 2], "frame index in [1, 1]"),
        (["float32", [1], -1], "frame index in [1, 1]"),
        (["float32", [1], "1234"], "frame index in [1, 1]"),
        (["float32", [3], 1], "needs 12 bytes, got 8"),
        (["object", [1], 1], "unknown tensor dtype"),
        ([7, [1], 1], "dtype must be a string"),
        (["float32", [1]], "[dtype, shape, data]"),
        ({"dtype": "float32"}, "[dtype, shape, data]"),
        ("float32", "[dtype, shape, data]"),
    ],
)
def test_what_is_no_tensor(array: object, words: str) -> None:
    """A tensor whose head does not fit its bytes is refused by name, without allocating what it claims."""
    error = message_of_error(request_with(9, array), b"12345678")
    assert error.startswith("EngineCoreRequest.prompt_embeds: ")
    assert words in error


@pytest.mark.parametrize("dtype", ["O", "V0", "S3", "U2", "<M8[s]", "i4,O", "(2,", "(1,2i4", "<f3", "<f9999", "\x00"])
def test_arrays_hold_numbers_only(dtype: str) -> None:
    """Of numpy's dtype language only numbers and booleans are taken: no objects, records, strings or expressions."""
    document = msgspec.msgpack.encode(["id", [], [[dtype, [0], Ext(3, b"")], None, None, None]])
    with pytest.raises(WireError, match=r"new_logprobs\.token_ids: array dtype must be a number or boolean"):
        Decoder(EngineCoreOutput).decode([document])


def test_errors_are_short() -> None:
    """However long the offending value, the error that quotes it is not."""
    assert len(message_of_error(request_with(9, ["float32", [-(2**60)] * 60, "x" * 1_000_000]))) <= MAX_ERROR_CHARS


def test_no_frame() -> None:
    """A message of no frames at all is an error like any other."""
    with pytest.raises(WireError, match="no frame"):
        Decoder(EngineCoreRequest).decode([])


def test_not_a_number_decodes() -> None:
    """NaN is a value: what may not be NaN is the business of validation."""
    request = decode_request(request_with(3, {"temperature": math.nan}))
    assert request.sampling_params is not None
    assert math.isnan(request.sampling_params.temperature)


@pytest.mark.parametrize("num_columns", [1, 21, 100])
def test_logprobs_make_the_trip(num_columns: int) -> None:
    """Arrays come back equal, inline or in frames of their own."""
    token_ids = np.arange(num_columns, dtype=np.int32).reshape(1, -1)
    logprobs = LogprobsLists(token_ids, -token_ids.astype(np.float32), np.array([1], np.int64))
    frames = Encoder().encode(EngineCoreOutput("id", [0], new_logprobs=logprobs))
    assert len(frames) == (1 if token_ids.nbytes < INLINE_BELOW_BYTES else 3)
    back = Decoder(EngineCoreOutput).decode(frames).new_logprobs
    assert back is not None
    for sent, received in zip(logprobs[:3], back[:3], strict=True):
        np.testing.assert_array_equal(sent, received)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "bool", "int64", "float16"])
def test_tensors_keep_their_type(dtype: str) -> None:
    """A tensor keeps torch's name of its type, also where numpy has no such type."""
    item_bytes = {"bfloat16": 2, "float8_e5m2": 1, "bool": 1, "int64": 8, "float16": 2}[dtype]
    head = [dtype, [300], 1]
    request = decode_request(request_with(9, head), bytes(300 * item_bytes))
    frames = Encoder().encode(request)
    assert request.prompt_embeds == decode_request(bytes(frames[0]), bytes(frames[1])).prompt_embeds
    assert request.prompt_embeds is not None
    assert request.prompt_embeds.dtype == dtype


@pytest.mark.parametrize("array", [np.zeros((64, 64), np.float32)[::2, ::3], np.array(1.5, np.float32), np.zeros(0)])
def test_any_layout_is_sent_in_c_order(array: Any) -> None:
    """Strided, scalar and empty arrays arrive with their shape and values."""
    frames = Encoder().encode(EngineCoreOutput("id", [], routed_experts=array))
    back = Decoder(EngineCoreOutput).decode(frames).routed_experts
    np.testing.assert_array_equal(back, array)


def test_encode_into_uses_the_buffer_again() -> None:
    """A longer, then a shorter message in one buffer: each comes out whole."""
    encoder, buffer = Encoder(), bytearray()
    for tokens in (list(range(5000)), [1]):
        (frame,) = encoder.encode_into(EngineCoreOutput("id", tokens), buffer)
        assert frame is buffer
        assert Decoder(EngineCoreOutput).decode([frame]).new_token_ids == tokens


@pytest.mark.parametrize("value", [object(), np.array([object()])])
def test_what_cannot_be_sent(value: Any) -> None:
    """Objects without a form on the wire are refused, never pickled."""
    with pytest.raises(TypeError, match="cannot be sent"):
        Encoder().encode(EngineCoreOutput("id", [], kv_transfer_params={"key": value}))


def wire_error(message_type: Any, frames: list[bytes]) -> str:
    """The text of the WireError, or nothing if ``frames`` decode. Any other exception fails the test."""
    try:
        Decoder(message_type, "message").decode(frames)
    except WireError as error:
        return str(error)
    return ""


def decodes_or_raises_wire_error(message_type: Any, frames: list[bytes]) -> None:
    error = wire_error(message_type, frames)
    assert not error or error.startswith("message")


recorded_messages = st.sampled_from(recordings())


@given(recorded=recorded_messages, data=st.data())
def test_damaged_messages(recorded: Recording, data: st.DataObject) -> None:
    """Genuine messages with bytes overwritten, cut off or put in decode or raise WireError, and nothing else."""
    frames = list(recorded.frames)
    which = data.draw(st.integers(0, len(frames) - 1))
    damaged = bytearray(frames[which])
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(damaged)))
        damaged[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    frames[which] = bytes(damaged)
    decodes_or_raises_wire_error(recorded.message_type, frames)


@given(recorded=recorded_messages, data=st.data())
def test_truncated_messages(recorded: Recording, data: st.DataObject) -> None:
    """No cut of a genuine document decodes."""
    document = recorded.frames[0]
    cut = document[: data.draw(st.integers(0, len(document) - 1))]
    with pytest.raises(WireError):
        Decoder(recorded.message_type).decode([cut, *recorded.frames[1:]])


@given(message_type=st.sampled_from(MESSAGE_TYPES), frames=st.lists(st.binary(max_size=200), max_size=3))
def test_random_bytes(message_type: Any, frames: list[bytes]) -> None:
    """Random bytes decode or raise WireError, and nothing else."""
    decodes_or_raises_wire_error(message_type, frames)


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars | st.binary(max_size=8).map(lambda data: Ext(3, data)),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8) | st.integers(0, 9), inner),
    max_leaves=12,
)


@given(message_type=st.sampled_from(MESSAGE_TYPES), elements=st.lists(values, max_size=22), as_map=st.booleans())
def test_well_formed_nonsense(message_type: Any, elements: list[Any], as_map: bool) -> None:
    """Well-formed msgpack of the wrong content decodes or raises WireError, and nothing else."""
    names = [field.encode_name for field in msgspec.structs.fields(message_type)]
    content = dict(zip(names, elements, strict=False)) if as_map else elements
    decodes_or_raises_wire_error(message_type, [msgspec.msgpack.encode(content)])


arrays = st.tuples(
    st.sampled_from(["float32", "int64", "bool", "bfloat16", "<f4", "x"]) | st.text(max_size=6),
    st.lists(st.integers(-1, 2**64 - 1), max_size=4) | scalars,
    st.integers(-1, 4) | st.binary(max_size=16).map(lambda data: Ext(3, data)) | scalars,
)


@given(array=arrays, aux=st.lists(st.binary(max_size=16), max_size=3))
def test_nonsense_arrays(array: Any, aux: list[bytes]) -> None:
    """Array heads of every kind decode to that shape or raise WireError, and nothing else."""
    document = request_with(9, array)
    error = wire_error(EngineCoreRequest, [document, *aux])
    if error:
        assert error.startswith("message.prompt_embeds: ")
    else:
        tensor = decode_request(document, *aux).prompt_embeds
        assert isinstance(tensor, Tensor)
        assert list(tensor.array.shape) == array[1]
