"""What becomes of each kind of message, without sockets or threads."""

import queue
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.null_engine import NullEngine, NullEngineConfig
from core.front_ends import FrontEnds
from core.intake import AddedRequest, InputQueue, Intake, OutputQueue
from core.wire.codec import Encoder
from core.wire.messages import EngineCoreOutputs, EngineCoreRequest, FinishReason, RequestType, UtilityCall
from core.wire.tensor import Tensor
from core.wire.tensor_ipc import TensorReceiver, TensorSender, tensor_channel
from tests.core.front_end import make_request
from tests.core.wire.recorded import recordings

encode = msgspec.msgpack.encode
NUM_CLIENTS = 3


class Desk:
    """An intake and its queues."""

    def __init__(self, engine: NullEngine | None = None, tensors: TensorReceiver | None = None) -> None:
        self.engine = engine or NullEngine(NullEngineConfig(max_model_len=100))
        self.input_queue: InputQueue = queue.SimpleQueue()
        self.output_queue: OutputQueue = queue.SimpleQueue()
        front_ends = FrontEnds(NUM_CLIENTS, now=0.0)
        self.intake = Intake(self.engine, self.input_queue, self.output_queue, front_ends, tensors)

    def take(self, *frames: bytes, from_client: int = 2) -> None:
        self.intake.take(from_client, list(frames))

    def add(self, message: EngineCoreRequest, from_client: int = 2) -> None:
        document, *arrays = self.encoded(message)
        self.take(RequestType.ADD.value, document, *arrays, from_client=from_client)

    @staticmethod
    def encoded(message: EngineCoreRequest) -> list[bytes]:
        return [bytes(frame) for frame in Encoder().encode(message)]

    def added(self) -> AddedRequest:
        request_type, payload = self.input_queue.get_nowait()
        assert request_type is RequestType.ADD
        return payload

    def answer(self) -> tuple[int, EngineCoreOutputs]:
        item = self.output_queue.get_nowait()
        assert isinstance(item, tuple)
        return item

    def refusal(self) -> tuple[int, str, str]:
        """Client, request id and cause of the finish ERROR that was answered; nothing went to the engine."""
        client_index, outputs = self.answer()
        (output,) = outputs.outputs
        assert (output.finish_reason, output.new_token_ids) == (FinishReason.ERROR, [])
        assert outputs.finished_requests == [output.request_id]
        assert outputs.timestamp > 0
        assert self.input_queue.empty()
        return client_index, output.request_id, str(output.stop_reason)

    @property
    def is_silent(self) -> bool:
        return self.input_queue.empty() and self.output_queue.empty() and self.engine.aborts_queue.empty()


def test_add() -> None:
    """A good request goes to the engine, preprocessed, with whom to tell if it cannot be added."""
    desk = Desk()
    desk.add(make_request("a", client_index=1))
    request_id, client_index, request, _ = desk.added()
    assert (request_id, client_index) == ("a", 1)
    assert request.max_num_tokens == 5 + 3
    assert desk.is_silent


@pytest.mark.parametrize("client_index", [-1, NUM_CLIENTS, 2**40])
def test_client_index_out_of_range(client_index: int) -> None:
    """A request that names no client is answered to the one that sent it."""
    desk = Desk()
    desk.add(make_request("a", client_index=client_index), from_client=2)
    added = desk.added()
    assert added.client_index == added.request.client_index == 2


def test_refused_by_the_engine() -> None:
    """What the engine's checks refuse ends with an error that says why, to the client the request names."""
    desk = Desk()
    desk.add(make_request("a", client_index=1, max_tokens=0))
    assert desk.refusal() == (1, "a", "refused: max_tokens must be at least 1, got 0")


@pytest.mark.parametrize("name", ["the client's", None])
def test_lines_name_the_request(name: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """As the front end calls it, if it says; its log has the same name."""
    request = make_request("a-1f2e", max_tokens=0)
    Desk().add(msgspec.structs.replace(request, external_req_id=name))
    (record,) = caplog.records
    assert vars(record)["request_id"] == (name or "a-1f2e")
    assert "a-1f2e" in record.getMessage()


def test_bug_in_preprocessing() -> None:
    """An exception of any kind in preprocessing ends that request only."""

    class BuggyEngine(NullEngine):
        def preprocess_add_request(self, message: EngineCoreRequest) -> Any:
            return [][len(message.request_id)]

    desk = Desk(BuggyEngine())
    desk.add(make_request("a"))
    assert desk.refusal() == (0, "a", "list index out of range")


@pytest.mark.parametrize(
    ("document", "refusal"),
    [
        (
            ["a", [1], None, {"max_tokens": "x"}, None, 0.0, None, None, None],
            "refused: ADD.sampling_params.max_tokens: ",
        ),
        (["a", [1], None, {}, None, 0.0], "refused: ADD: Expected `array` of at least length 9, got 6"),
        (
            ["a", [1], None, {}, msgspec.msgpack.Ext(1, b"x"), 0.0, None, None, None],
            "refused: ADD: extension 1 (pickle)",
        ),
    ],
)
def test_undecodable_with_an_id(document: Any, refusal: str) -> None:
    """A request that does not decode but has an id ends with an error that names the place."""
    desk = Desk()
    desk.take(RequestType.ADD.value, encode(document))
    client_index, request_id, cause = desk.refusal()
    assert (client_index, request_id) == (2, "a")
    assert cause.startswith(refusal)


def test_undecodable_for_another_client() -> None:
    """The client that an undecodable request names is the one that is answered."""
    desk = Desk()
    desk.take(RequestType.ADD.value, encode(["a", "no tokens", *[None] * 9, 1]))
    assert desk.refusal()[:2] == (1, "a")


def test_truncated_request() -> None:
    """A request cut off after its id is answered."""
    desk = Desk()
    desk.take(RequestType.ADD.value, desk.encoded(make_request("a"))[0][:-5])
    assert desk.refusal() == (2, "a", "refused: ADD: Input data was truncated")


class PoorReceiver(TensorReceiver):
    """Has no memory left."""

    def take(self, handle: object, num_bytes: int) -> memoryview:  # noqa: ARG002
        raise MemoryError(num_bytes)


def test_no_memory_for_a_request() -> None:
    """What fails for want of memory, and not for what it says, is answered as well."""
    sender_end, receiver_end = tensor_channel()
    sender, receiver = TensorSender(sender_end, threshold_bytes=0), PoorReceiver(receiver_end)
    desk = Desk(tensors=receiver)
    message = msgspec.structs.replace(make_request("a"), prompt_embeds=Tensor(np.ones((99, 4), np.float32)))
    desk.take(RequestType.ADD.value, *(bytes(frame) for frame in Encoder(sender).encode(message)))
    assert desk.refusal() == (0, "a", "1584")
    sender.close()
    receiver.close()


def test_abort_takes_both_queues() -> None:
    """An abort goes to the running step and, behind what was added before, to the input queue."""
    desk = Desk()
    desk.take(RequestType.ABORT.value, encode(["a", "b"]))
    assert desk.engine.aborts_queue.take() == ["a", "b"]
    assert desk.input_queue.get_nowait() == (RequestType.ABORT, ["a", "b"])
    assert desk.is_silent


def test_utility() -> None:
    """A call goes to the busy loop; one that names no client is answered to the one that sent it."""
    desk = Desk()
    desk.take(RequestType.UTILITY.value, encode([7, 2**64 - 1, "is_sleeping", []]))
    call = UtilityCall(2, 2**64 - 1, "is_sleeping", [])
    assert desk.input_queue.get_nowait() == (RequestType.UTILITY, call)


def test_undecodable_utility() -> None:
    """A call that does not decode, such as one with pickled arguments, fails if its id can be read."""
    desk = Desk()
    desk.take(RequestType.UTILITY.value, encode([1, 42, "collective_rpc", [msgspec.msgpack.Ext(2, b"x")]]))
    client_index, outputs = desk.answer()
    assert client_index == 1
    assert outputs.utility_output is not None
    assert outputs.utility_output.call_id == 42
    assert outputs.utility_output.failure_message == "UTILITY: extension 2 (cloudpickle) is refused"
    assert desk.is_silent


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"\x00"],
        [b"\x00", b""],
        [b"\x00\x00", encode(["a"])],
        [b"", encode(["a"])],
        [b"\x02", encode([0, 1])],
        [b"\x04", encode("the executor failed")],
        [b"\x05", encode(None)],
        [b"\xff", b"\xff"],
        [b"\x00", encode([1.5, [1], None, {}, None, 0.0, None, None, None])],
        [b"\x01", encode([1, 2])],
        [b"\x01", encode("a")],
        [b"\x03", encode([0, "x", "is_sleeping", []])],
    ],
)
def test_what_nobody_can_be_told_of(frames: list[bytes]) -> None:
    """Messages without a readable id, or of no type that comes over the wire, are counted and change nothing."""
    desk = Desk()
    desk.take(*frames)
    assert desk.is_silent
    assert desk.intake.num_dropped == 1


messages = st.lists(st.binary(max_size=40), max_size=3) | st.builds(
    lambda recorded, cut, tail: [*recorded.head[-1:], recorded.frames[0][:cut] + tail],
    st.sampled_from(recordings()),
    st.integers(0, 500),
    st.binary(max_size=4),
)


@given(st.lists(messages, max_size=5), st.integers(0, NUM_CLIENTS - 1))
def test_a_good_request_after_anything(floods: list[list[bytes]], from_client: int) -> None:
    """Whatever came before, a good request is taken."""
    desk = Desk()
    for frames in floods:
        desk.take(*frames, from_client=from_client)
    while not desk.input_queue.empty():
        desk.input_queue.get_nowait()
    desk.add(make_request("good"))
    assert desk.added().request_id == "good"


def test_start_of_a_wave() -> None:
    """The coordinator's START reaches the busy loop; READY, and what does not decode, does not."""
    desk = Desk()
    for frames in ([b"READY"], [b"\x02"], [b"\x02", b"\xc1"], [b"\x00", b"\x90"], [b""]):
        desk.intake.take_from_coordinator(frames)
    assert desk.input_queue.empty()
    desk.intake.take_from_coordinator([b"\x02", msgspec.msgpack.encode((3, b"\x01\x00"))])
    request_type, start = desk.input_queue.get_nowait()
    assert (request_type, start.wave) == (RequestType.START_DP_WAVE, 3)
