"""Tensors through shared memory: handed over once, inline when that fails, and nothing is left whatever dies."""

import logging
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.wire.codec import Decoder, Encoder, WireError
from core.wire.messages import EngineCoreRequest
from core.wire.sampling_params import SamplingParams
from core.wire.tensor import Tensor
from core.wire.tensor_ipc import HandleError, TensorReceiver, TensorSender, tensor_channel

LARGE = np.arange(1 << 18, dtype=np.float32).reshape(-1, 64)
"""1 MiB: as much as is handed over by default."""
SHORTLY_S = 0.01
ROOT = Path(__file__).parents[3]


class Pair:
    """Both ends, and the codecs that use them."""

    def __init__(self, threshold_bytes: int = 1 << 20) -> None:
        self.sender_end, self.receiver_end = tensor_channel()
        self.sender = TensorSender(self.sender_end, threshold_bytes)
        self.receiver = TensorReceiver(self.receiver_end, SHORTLY_S)
        self.encoder = Encoder(self.sender)
        self.decoder = Decoder(EngineCoreRequest, tensors=self.receiver)

    def encode(self, array: Any = LARGE, dtype: str | None = None) -> list[Any]:
        return [bytes(frame) for frame in self.encoder.encode(request_with(Tensor(array, dtype)))]

    def decode(self, frames: list[Any]) -> Tensor:
        embeds = self.decoder.decode(frames).prompt_embeds
        assert embeds is not None
        return embeds

    def error(self, frames: list[Any]) -> str:
        with pytest.raises(WireError) as caught:
            self.decoder.decode(frames)
        return str(caught.value)

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def request_with(embeds: Any) -> EngineCoreRequest:
    return EngineCoreRequest("r", None, None, SamplingParams(), None, 0.0, None, None, None, prompt_embeds=embeds)


def document_with(embeds: object) -> list[bytes]:
    return [msgspec.msgpack.encode(["r", None, None, {}, None, 0.0, None, None, None, embeds])]


def handle(pair: Pair, tensor_id: int) -> dict[str, object]:
    return {"sender_id": pair.sender.sender_id, "tensor_id": tensor_id}


def test_a_large_tensor_goes_past_its_message(pair: Pair) -> None:
    """The message is a few bytes in one frame; the receiver has the same numbers, of every type."""
    for tensor in (Tensor(LARGE), Tensor(LARGE.view(np.uint16), "bfloat16")):
        frames = pair.encode(tensor.array, tensor.dtype)
        assert len(frames) == 1
        assert len(frames[0]) < 200
        assert pair.decode(frames) == tensor


def test_a_small_tensor_and_other_arrays_stay_in_their_message(pair: Pair) -> None:
    """Below the threshold nothing is handed over."""
    frames = pair.encode(LARGE[:-1])
    assert len(frames) == 2
    assert pair.decode(frames) == Tensor(LARGE[:-1])


def test_what_the_receiver_has_the_sender_cannot_change(pair: Pair) -> None:
    """It was copied when it was handed over, and again when it was taken."""
    array = LARGE.copy()
    frames = pair.encode(array)
    array[:] = np.nan
    assert pair.decode(frames) == Tensor(LARGE)


def test_tensors_of_messages_that_are_refused_do_not_stay(pair: Pair) -> None:
    """What no message took is dropped with the next that is taken; its handle then leads to nothing."""
    first, second, third = pair.encode(), pair.encode(), pair.encode()
    assert pair.decode(second) == Tensor(LARGE)
    assert repr(pair.receiver) == "TensorReceiver(1 tensors not taken)"
    assert pair.decode(third) == Tensor(LARGE)
    for frames in (first, second):
        assert "prompt_embeds: tensor" in pair.error(frames)


def test_a_handle_is_good_once(pair: Pair) -> None:
    """A message sent twice gets its tensor once."""
    frames = pair.encode()
    pair.decode(frames)
    assert "was taken or dropped, or never handed over" in pair.error(frames)


def test_a_tensor_that_does_not_come_is_waited_for_no_longer_than_allowed(pair: Pair) -> None:
    """The message that names it is refused; the next is served."""
    assert "was not handed over within 0.01 s" in pair.error(document_with(["float32", [4], handle(pair, 7)]))
    assert pair.decode(pair.encode()) == Tensor(LARGE)


def test_a_shape_that_does_not_fit_the_tensor_is_refused(pair: Pair) -> None:
    """Nothing is allocated for what the shape claims."""
    pair.encode()
    document = document_with(["float32", [2**20, 2**20], handle(pair, 0)])
    assert "must have 1 to 1073741824 bytes" in pair.error(document)
    document = document_with(["float32", [4], handle(pair, 0)])
    assert "has 1048576 bytes, its shape needs 16" in pair.error(document)


def test_without_a_channel_a_handle_is_refused() -> None:
    """As any other nonsense in its place."""
    document = document_with(["float32", [4], {"sender_id": "00000000", "tensor_id": 0}])
    with pytest.raises(WireError, match=r"prompt_embeds: .*a handle, but no tensors are handed over"):
        Decoder(EngineCoreRequest).decode(document)


@settings(max_examples=60)
@given(
    st.dictionaries(st.sampled_from(["sender_id", "tensor_id", "path", "fd"]), st.integers() | st.text() | st.none())
    | st.fixed_dictionaries({"sender_id": st.text(alphabet="0af", min_size=8, max_size=8), "tensor_id": st.integers()})
)
def test_a_malformed_handle_is_refused(value: dict[str, object]) -> None:
    """Whatever stands in it; the next tensor comes as if nothing had been."""
    pair = Pair()
    frames = pair.encode()
    with pytest.raises(HandleError):
        pair.receiver.take(value, 1 << 20)
    assert pair.decode(frames) == Tensor(LARGE)
    pair.close()


def test_a_receiver_that_does_not_read_costs_nothing_but_memory(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """The channel takes some, then tensors go with their messages, with one warning, until it reads again."""
    pair = Pair(threshold_bytes=4096)
    sent = [pair.encode(LARGE[:32]) for _ in range(600)]
    assert len(sent[0]) == 1
    assert len(sent[-1]) == 2
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert all(pair.decode(frames) == Tensor(LARGE[:32]) for frames in sent)
    assert len(pair.encode(LARGE[:32])) == 1
    pair.close()


@pytest.mark.parametrize(
    ("limit", "value"), [(resource.RLIMIT_FSIZE, 1 << 19), (resource.RLIMIT_NOFILE, 0)], ids=["memory", "descriptors"]
)
def test_without_memory_or_descriptors_tensors_go_with_their_messages(pair: Pair, limit: int, value: int) -> None:
    """Real limits of this process; once they are lifted, tensors are handed over again."""
    before = resource.getrlimit(limit)
    resource.setrlimit(limit, (value, before[1]))
    try:
        frames = pair.encode()
    finally:
        resource.setrlimit(limit, before)
    assert len(frames) == 2
    assert pair.decode(frames) == Tensor(LARGE)
    assert len(pair.encode()) == 1


def test_a_receiver_out_of_descriptors_refuses_that_one_message(pair: Pair) -> None:
    """The kernel drops what it cannot hand out; the next tensor comes."""
    frames = pair.encode()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        error = pair.error(frames)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert "there was no descriptor left" in error
    assert pair.decode(pair.encode()) == Tensor(LARGE)


def test_nothing_grows_over_two_thousand_tensors() -> None:
    """Neither descriptors nor names nor, by more than a few tensors, memory; half of them are never taken."""
    pair, process = Pair(threshold_bytes=4096), psutil.Process()
    array = LARGE[:512]
    before = None
    for number in range(2000):
        frames = pair.encode(array)
        if number % 2:
            pair.decode(frames)
        if number == 100:
            before = process.num_fds(), sorted(os.listdir("/dev/shm")), process.memory_info().rss
    assert before is not None
    num_fds, names, num_bytes = before
    assert process.num_fds() <= num_fds + 1
    assert sorted(os.listdir("/dev/shm")) == names
    assert process.memory_info().rss < num_bytes + (16 << 20)
    pair.close()


SENDER = """
import socket, sys, time
import numpy as np
from core.wire.codec import Encoder
from core.wire.tensor import Tensor
from core.wire.tensor_ipc import TensorSender
sender = TensorSender(socket.socket(fileno=int(sys.argv[1])))
handle = sender.hand_over(np.ones(1 << 18, np.float32).view(np.uint8).data)
print(handle.sender_id, handle.tensor_id, flush=True)
time.sleep(600)
"""


def start_sender(end: socket.socket) -> tuple["subprocess.Popen[str]", dict[str, object]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SENDER, str(end.fileno())],
        pass_fds=[end.fileno()],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    sender_id, tensor_id = process.stdout.readline().split()
    return process, {"sender_id": sender_id, "tensor_id": int(tensor_id)}


def kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_sender_that_was_killed_leaves_what_it_handed_over_and_nothing_else() -> None:
    """The tensor comes; the next is refused at once; no name and no descriptor stays."""
    names = os.listdir("/dev/shm")
    sender_end, receiver_end = tensor_channel()
    process, given_handle = start_sender(sender_end)
    sender_end.close()
    kill(process)
    num_fds = psutil.Process().num_fds()
    receiver = TensorReceiver(receiver_end, timeout_s=600)
    assert np.frombuffer(receiver.take(given_handle, 1 << 20), np.float32).sum() == 1 << 18
    with pytest.raises(HandleError, match="the sender is gone"):
        receiver.take({**given_handle, "tensor_id": 1}, 1 << 20)
    assert psutil.Process().num_fds() == num_fds
    assert os.listdir("/dev/shm") == names
    receiver.close()


def test_a_receiver_that_is_gone_costs_the_sender_nothing(pair: Pair) -> None:
    """What lies in the channel goes with it; from then on tensors go with their messages."""
    process = psutil.Process()
    pair.encode()
    pair.receiver.close()
    num_fds = process.num_fds()
    frames = pair.encode()
    assert len(frames) == 2
    assert process.num_fds() == num_fds
