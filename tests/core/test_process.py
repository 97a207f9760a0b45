"""Core processes, from HELLO to exit, as a front end sees them."""

import gc
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest

from core.process import frozen_garbage
from core.wire.messages import EventType, FinishReason, RequestType
from core.wire.tensor import Tensor
from core.wire.tensor_ipc import TensorSender, tensor_channel
from core.wire.version import WireVersion
from tests.core.front_end import ENDLESS, CoreProcess, FrontEnd, make_request
from tests.core.wire.recorded import recording


@pytest.mark.parametrize("scheme", ["ipc", "tcp"])
def test_start_up_order(tmp_path: Path, scheme: str) -> None:
    """HELLO, INIT, a ready response on every input socket, READY with the same flags; then requests are served."""
    with (
        FrontEnd(tmp_path, num_clients=2, scheme=scheme) as front_end,
        CoreProcess(front_end.address, "--local") as core,
    ):
        hello = front_end.receive_hello()
        assert (hello.status, hello.local, hello.headless) == ("HELLO", True, False)
        front_end.send_init()
        assert front_end.receive_ready_response(0) == front_end.receive_ready_response(1)
        ready = front_end.receive_hello()
        assert (ready.status, ready.local, ready.headless) == ("READY", True, False)
        front_end.add("a", client_index=1)
        assert len(front_end.receive_until_finished("a", client_index=1)["a"]) == 3
        core.terminate()
        assert core.wait() == 0


def test_headless_hello(front_end: FrontEnd) -> None:
    """A core started by itself says what the genuine headless core says, byte for byte."""
    with CoreProcess(front_end.address):
        assert front_end.handshake.recv_multipart() == [*recording("core_hello").head, *recording("core_hello").frames]


def test_rank_is_the_identity(tmp_path: Path) -> None:
    """The rank of a core is its identity on every socket."""
    arguments = ("--data-parallel-rank", "258")
    with FrontEnd(tmp_path, rank=258) as front_end, CoreProcess(front_end.address, *arguments):
        front_end.accept()
        assert front_end.identity == b"\x02\x01"
        front_end.add("a")
        assert front_end.receive().engine_index == 258


def test_core_may_come_first(tmp_path: Path) -> None:
    """A core started before its front end waits for it."""
    with CoreProcess(f"ipc://{tmp_path}/handshake") as core:
        core.wait_for_log("waiting for a front end")
        with FrontEnd(tmp_path) as front_end:
            front_end.accept()


def test_a_request_from_first_to_last_output(front_end: FrontEnd) -> None:
    """Events and prefill counts come with the first token, the reason with the last, then the statistics alone."""
    with CoreProcess(front_end.address, "--token-ids", "10-19"):
        front_end.accept()
        front_end.add("a")
        first, second, last, statistics = (front_end.receive() for _ in range(4))
        assert [output.new_token_ids for message in (first, second, last) for output in message.outputs] == [
            [15],
            [16],
            [17],
        ]
        assert [event.type for event in first.outputs[0].events or ()] == [EventType.QUEUED, EventType.SCHEDULED]
        assert first.outputs[0].prefill_stats is not None
        assert first.outputs[0].prefill_stats.num_prompt_tokens == 5
        assert second.outputs[0].events is second.outputs[0].prefill_stats is None
        assert last.outputs[0].finish_reason is FinishReason.LENGTH
        assert first.timestamp < last.timestamp
        assert (statistics.outputs, statistics.finished_requests) == ([], None)
        assert statistics.scheduler_stats is not None
        assert statistics.scheduler_stats.num_running_reqs == 0


def test_clients_get_their_own_outputs(two_clients: FrontEnd) -> None:
    """Each client receives the outputs of its own requests and no other's; one of them the statistics."""
    with CoreProcess(two_clients.address):
        two_clients.accept()
        two_clients.add("a", client_index=0, max_tokens=2)
        two_clients.add("b", client_index=1, max_tokens=2)
        for client_index, request_id in enumerate("ab"):
            outputs = two_clients.receive_until_finished(request_id, client_index=client_index)
            assert len(outputs[request_id]) == 2


def test_each_front_end_is_served_in_its_version(tmp_path: Path) -> None:
    """One core, three front ends: of 0.25, of 0.33, and one that does not tell; each gets the arrays it can read."""
    with FrontEnd(tmp_path, num_clients=3) as front_end, CoreProcess(front_end.address):
        front_end.accept()
        for client_index, num_elements in enumerate((20, 22, 12)):
            request = plain(make_request(f"r{client_index}", client_index))
            front_end.send(
                RequestType.ADD.value,
                msgspec.msgpack.encode([*request, None, None][:num_elements]),
                client_index=client_index,
            )
        firsts = [msgspec.msgpack.decode(front_end.outputs[i].recv()) for i in range(3)]
        assert [(len(message), len(message[1][0])) for message in firsts] == [(8, 13), (8, 14), (8, 9)]
        assert firsts[0][1][0][10]["num_prompt_tokens"] == firsts[1][1][0][11]["num_prompt_tokens"] == 5


@pytest.mark.parametrize(("arguments", "version"), [((), "0.25.1"), (("--wire-version", "0.33"), "0.33.0")])
def test_introduction(front_end: FrontEnd, arguments: tuple[str, ...], version: str) -> None:
    """A core says which release it speaks as, and all that either requires; each start is another instance."""
    instances = set()
    for _ in range(2):
        with CoreProcess(front_end.address, *arguments):
            front_end.receive_hello()
            front_end.send_init()
            said = front_end.receive_ready_response()
            assert said.vllm_version == version
            assert msgspec.UNSET not in msgspec.structs.astuple(said)
            instances.add(said.instance_id)
            front_end.receive_hello()
    assert len(instances) == 2


def plain(message: object) -> list[Any]:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message))


def test_abort_is_not_answered(front_end: FrontEnd) -> None:
    """An aborted request has no further output, just the statistics; unknown ids are ignored."""
    with CoreProcess(front_end.address, "--tokens-per-second", "20"):
        front_end.accept()
        front_end.add("a", max_tokens=ENDLESS)
        assert front_end.receive().outputs[0].request_id == "a"
        front_end.abort("unknown", "a", "a")
        while (message := front_end.receive()).outputs:
            assert not message.outputs[0].finished
        assert message.scheduler_stats is not None
        assert message.scheduler_stats.num_running_reqs == 0
        front_end.abort("a")
        front_end.add("b", max_tokens=1)
        assert front_end.receive().outputs[0].request_id == "b"


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("py_add_chat_stream", WireVersion.V0_25),
        ("rs_add_chat", WireVersion.V0_25),
        ("rs33_add", WireVersion.V0_33),
        ("own_add_short", WireVersion.V0_25),
    ],
)
def test_genuine_requests_are_served(tmp_path: Path, name: str, version: WireVersion) -> None:
    """Requests of 20, 22 and 9 elements, as genuine front ends sent them, are answered."""
    recorded = recording(name)
    request_id, max_tokens = recorded.decoded[0][0], recorded.decoded[0][3]["max_tokens"]
    with FrontEnd(tmp_path, version=version) as front_end, CoreProcess(front_end.address):
        front_end.accept()
        front_end.send(recorded.head[-1], *recorded.frames)
        assert len(front_end.receive_until_finished(request_id)[request_id]) == max_tokens


def test_utilities_at_start_up(front_end: FrontEnd) -> None:
    """The two calls that vLLM's front end makes before it serves are answered; an unknown one fails, by name."""
    with CoreProcess(front_end.address):
        front_end.accept()
        front_end.call(2**64 - 1, "reset_mm_cache")
        assert front_end.receive_answer(2**64 - 1).result == (None, None)
        front_end.call(2, "get_supported_tasks")
        assert front_end.receive_answer(2).result == (None, ["generate"])
        front_end.call(3, "no_such_method")
        answer = front_end.receive_answer(3)
        assert answer.result is None
        assert answer.failure_message.startswith("Call to no_such_method method failed: ")


def test_garbage_does_not_end_the_service(two_clients: FrontEnd) -> None:
    """A flood of garbage, an id of the wrong type, a bad parameter: then a good request is answered."""
    with CoreProcess(two_clients.address) as core:
        two_clients.accept()
        for i in range(2000):
            two_clients.send(bytes([i % 256]), b"\xc1" * (i % 50), client_index=i % 2)
        two_clients.send(b"")
        two_clients.send(b"\x00")
        two_clients.send(b"\x04", msgspec.msgpack.encode("EXECUTOR_FAILED"))
        two_clients.send(b"\x00", msgspec.msgpack.encode([1.5, [1], None, {}, None, 0.0, None, None, None]))
        two_clients.send(b"\x00", msgspec.msgpack.encode(["bad", [1], None, {"max_tokens": "x"}]), client_index=1)
        two_clients.add("good", client_index=1)
        outputs = two_clients.receive_until_finished("bad", "good", client_index=1)
        assert outputs["bad"][0].finish_reason is FinishReason.ERROR
        assert "at least length 9" in str(outputs["bad"][0].stop_reason)
        assert outputs["good"][-1].finish_reason is FinishReason.LENGTH
        core.terminate()
        assert core.wait() == 0
        assert core.log.count("dropped a message") < 20


def test_duplicate_live_id(front_end: FrontEnd) -> None:
    """A second request with the id of a live one ends with an error; the core lives on."""
    with CoreProcess(front_end.address, "--tokens-per-second", "20"):
        front_end.accept()
        front_end.add("a", max_tokens=ENDLESS)
        front_end.add("a")
        assert front_end.receive_until_finished("a")["a"][-1].finish_reason is FinishReason.ERROR
        front_end.abort("a")
        front_end.add("b", max_tokens=1)
        assert front_end.receive_until_finished("b")["b"][-1].finish_reason is FinishReason.LENGTH


def test_idle_costs_nothing(front_end: FrontEnd) -> None:
    """Without requests every thread of the core sleeps: it is hardly ever woken, and has no child process."""
    with CoreProcess(front_end.address) as core:
        front_end.accept()
        front_end.add("a")
        front_end.receive_until_finished("a")
        process = psutil.Process(core.process.pid)
        assert process.children() == []
        before = num_wake_ups(process.pid)
        with pytest.raises(psutil.TimeoutExpired):
            process.wait(2)
        assert num_wake_ups(process.pid) - before < 20


def num_wake_ups(pid: int) -> int:
    """How often the threads of a process have given up the processor to wait for something."""
    statuses = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int(count) for status in statuses for count in re.findall(r"\nvoluntary_ctxt_switches:\s*(\d+)", status))


@pytest.mark.parametrize(("rank", "title"), [(0, "EngineCore"), (3, "EngineCore_DP3")])
def test_who_is_who_in_a_list_of_processes(tmp_path: Path, rank: int, title: str) -> None:
    """The process has the title of a vLLM core, and each of its threads the name of what it does."""
    arguments = "--data-parallel-rank", str(rank)
    with FrontEnd(tmp_path, rank=rank) as front_end, CoreProcess(front_end.address, *arguments) as core:
        front_end.accept()
        core.wait_for_log("ready")
        process = psutil.Process(core.process.pid)
        assert process.cmdline()[0] == f"sluicegate: {title}"
        names = {(task / "comm").read_text().strip() for task in Path(f"/proc/{process.pid}/task").iterdir()}
        assert names >= {"core-input", "core-output", "core-watcher"}


def test_what_was_loaded_is_no_garbage() -> None:
    """While the core serves the collector leaves alone what was there before, and can free it afterwards."""
    with frozen_garbage():
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("arguments", [(), ("--data-parallel-address", "127.0.0.1")])
def test_no_front_end_given(arguments: tuple[str, ...]) -> None:
    """Without an address to dial the command ends at once and says what is missing."""
    with CoreProcess("", *arguments) as core:
        assert core.wait() == 2
        assert "give --handshake-address" in core.log


def test_unusable_address() -> None:
    """An address that zmq cannot dial is an error of one line, naming it."""
    with CoreProcess("carrier-pigeon://home") as core:
        assert core.wait() == 1
        assert "cannot connect to carrier-pigeon://home" in core.log


def test_large_tensors_come_through_shared_memory(tmp_path: Path) -> None:
    """A request with one is served; one whose tensor was never handed over is refused, and disturbs no other."""
    sender_end, receiver_end = tensor_channel()
    sender = TensorSender(sender_end)
    descriptor = receiver_end.fileno()
    arguments = ("--tensor-ipc-fd", str(descriptor), "--max-model-len", "8192")
    with (
        FrontEnd(tmp_path, tensors=sender) as front_end,
        CoreProcess(front_end.address, *arguments, pass_fds=(descriptor,)),
    ):
        receiver_end.close()
        front_end.accept()
        for name in ("a", "b"):
            request = make_request(name)
            request.prompt_token_ids = None
            request.prompt_embeds = Tensor(np.zeros((4096, 64), np.float32))
            front_end.send_request(request)
        lost = ["float32", [4096, 64], {"sender_id": sender.sender_id, "tensor_id": 9}]
        document = ["lost", None, None, {}, None, 0.0, None, None, None, lost]
        front_end.send(RequestType.ADD.value, msgspec.msgpack.encode(document))
        front_end.add("c")
        received = front_end.receive_until_finished("a", "b", "c", "lost")
        (refusal,) = received["lost"]
        assert refusal.finish_reason is FinishReason.ERROR
        assert "was not handed over within" in str(refusal.stop_reason)
        assert [len(received[name]) for name in ("a", "b", "c")] == [3, 3, 3]
    sender.close()
