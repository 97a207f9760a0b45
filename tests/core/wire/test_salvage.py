"""Reading the id of a message that does not decode."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.wire.salvage import Salvaged, salvage_call, salvage_request
from tests.core.wire.recorded import recording, recordings

encode = msgspec.msgpack.encode
CLIENT_INDEX = 3


def request_elements(request_id: Any, client_index: Any = CLIENT_INDEX) -> list[Any]:
    return [request_id, *[None] * 10, client_index]


@pytest.mark.parametrize("length", [0, 1, 31, 32, 255, 256, 65_535, 65_536])
def test_ids_of_every_length(length: int) -> None:
    """The id is read whatever the msgpack form of its length."""
    assert salvage_request(encode(request_elements("x" * length))) == Salvaged("x" * length, CLIENT_INDEX)


@pytest.mark.parametrize("num_elements", [1, 15, 16, 65_535, 65_536])
def test_arrays_of_every_length(num_elements: int) -> None:
    """The id is read whatever the msgpack form of the array's length."""
    assert salvage_request(encode(["id", *[0] * (num_elements - 1)])).id == "id"


@pytest.mark.parametrize("name", ["py_add_chat_stream", "rs_add_many_params", "rs33_add", "own_add_short"])
def test_cut_requests(name: str) -> None:
    """A genuine request cut anywhere after its id still has it; cut before, it has none."""
    recorded = recording(name)
    document, request_id = recorded.frames[0], recorded.decoded[0][0]
    id_end = document.index(request_id.encode()) + len(request_id)
    for cut in range(len(document)):
        assert salvage_request(document[:cut]).id == (request_id if cut >= id_end else None)


@pytest.mark.parametrize("request_id", [1.5, 7, None, True, b"id", ["id"], {"id": 1}])
def test_ids_of_the_wrong_type(request_id: Any) -> None:
    """An id that is no string cannot be answered; the client that sent it is known all the same."""
    assert salvage_request(encode(request_elements(request_id))) == Salvaged(None, CLIENT_INDEX)


@pytest.mark.parametrize("client_index", ["0", 1.0, None, True])
def test_unreadable_client_index(client_index: Any) -> None:
    """A client index of the wrong type is as good as none."""
    assert salvage_request(encode(request_elements("id", client_index))) == Salvaged("id", None)


def test_pickled_parts_do_not_hide_the_rest() -> None:
    """Extensions are refused, not followed: id and client are read around them."""
    elements = request_elements("id")
    elements[2] = msgspec.msgpack.Ext(1, b"cos\nsystem\n")
    assert salvage_request(encode(elements)) == Salvaged("id", CLIENT_INDEX)


@pytest.mark.parametrize(
    ("elements", "salvaged"),
    [
        ([1, 42, "method", "no list"], Salvaged(42, 1)),
        ([1, 2**64 - 1, "method", [msgspec.msgpack.Ext(2, b"x")]], Salvaged(2**64 - 1, 1)),
        ([1, "42", "method", []], Salvaged(None, 1)),
        ([1], Salvaged(None, 1)),
        ({"call_id": 42}, Salvaged(None, None)),
    ],
)
def test_calls(elements: Any, salvaged: Salvaged) -> None:
    """The call id is read where it is an integer."""
    assert salvage_call(encode(elements)) == salvaged


def test_nonsense_does_not_hide_the_rest() -> None:
    """A string that is no UTF-8, a time that is none: the integers before and behind are read."""
    nonsense = [msgspec.Raw(b"\xa1\xff"), msgspec.Raw(b"\xc7\x01\xff\x00")]
    request = encode(["id", *nonsense, *[None] * 8, CLIENT_INDEX])
    assert salvage_request(request) == Salvaged("id", CLIENT_INDEX)
    assert salvage_call(encode([nonsense[0], 42, *nonsense])) == Salvaged(42, None)


@pytest.mark.parametrize("client_index", [0, 3, 127, 255, 2**32 - 1, 2**63, -1, -32, -33, -(2**15), -(2**31), -(2**63)])
@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\xd9",
        b"\xa2\xff\xff\x90",
        b"\xa1m" + b"\x91" * 100_000,
        b"\xa1m\xc7\x05\xffREADY",
    ],
    ids=["cut off", "cut in a head", "no UTF-8", "nested for ever", "a time that is none"],
)
def test_calls_that_are_nonsense_behind_their_id(client_index: int, rest: bytes) -> None:
    """Whoever waits for the answer is known, whatever the msgpack form of the numbers."""
    for call_id in (0, 127, 128, 2**16 - 1, 2**32, 2**64 - 1):
        head = b"\x94" + encode(client_index) + encode(call_id)
        assert salvage_call(head + rest) == Salvaged(call_id, client_index)
        assert salvage_call(head[:-1]).id is None


@given(st.binary(max_size=64) | st.sampled_from([found.frames[0] for found in recordings()]))
def test_never_raises(document: bytes) -> None:
    """Whatever the bytes, an answer comes: perhaps that nothing can be read."""
    salvage_request(document)
    salvage_call(document)
