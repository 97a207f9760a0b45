"""The input and output threads on real sockets."""

import os
import queue
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest
import zmq

from bench.null_engine import NullEngine
from core.front_ends import FrontEnds
from core.input_thread import InputThread
from core.intake import Intake, OutputQueue
from core.io_threads import IOThreads, Reports
from core.wire.messages import (
    ENGINE_CORE_DEAD,
    EngineAddresses,
    EngineCoreOutput,
    EngineCoreOutputs,
    FinishReason,
    LogprobsLists,
    RequestType,
    UtilityOutput,
)
from core.wire.stats import SchedulerStats
from tests.core.front_end import PATIENCE_S, FrontEnd, address_of


class Threads:
    """Both threads between a front end of two clients and the queues, and what they report."""

    def __init__(self, front_end: FrontEnd) -> None:
        self.front_end = front_end
        self.engine = NullEngine()
        self.input_queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.output_queue: OutputQueue = queue.SimpleQueue()
        self.unsendable: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self.lost: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.deaths: queue.SimpleQueue[str] = queue.SimpleQueue()
        inputs, outputs = front_end.inputs, front_end.outputs
        self.front_ends = FrontEnds(len(inputs), time.monotonic())
        self.io = IOThreads(
            EngineAddresses([address_of(s) for s in inputs], [address_of(s) for s in outputs]),
            0,
            self.front_ends,
            Intake(self.engine, self.input_queue, self.output_queue, self.front_ends),
            self.output_queue,
            Reports(self.unsendable.put, self.lost.put, self.deaths.put),
        )
        self.io.start(self.engine.ready_response)
        for client_index in range(len(inputs)):
            assert front_end.receive_ready_response(client_index) == self.engine.ready_response

    def put(self, *outputs: EngineCoreOutput, client_index: int = 0) -> None:
        self.output_queue.put((client_index, EngineCoreOutputs(outputs=list(outputs), timestamp=1.0)))


@pytest.fixture
def front_end(tmp_path: Path) -> Iterator[FrontEnd]:
    with FrontEnd(tmp_path, num_clients=2) as found:
        yield found


@pytest.fixture
def threads(front_end: FrontEnd) -> Iterator[Threads]:
    threads = Threads(front_end)
    yield threads
    threads.io.close(linger_ms=0)


def test_input_reaches_the_queues(threads: Threads) -> None:
    """Messages of every client come in, in each client's order."""
    threads.front_end.add("a", client_index=0)
    threads.front_end.abort("a")
    kinds = [threads.input_queue.get(timeout=PATIENCE_S)[0] for _ in range(2)]
    assert kinds == [RequestType.ADD, RequestType.ABORT]
    threads.front_end.add("b", client_index=1)
    assert threads.input_queue.get(timeout=PATIENCE_S)[1].client_index == 1


def test_outputs_reach_their_client(threads: Threads) -> None:
    """Outputs go to the client they are for, in order, with the engine's index."""
    for token in range(100):
        threads.put(EngineCoreOutput("a", [token]), client_index=0)
    threads.put(EngineCoreOutput("b", [7]), client_index=1)
    assert [threads.front_end.receive(0).outputs[0].new_token_ids for _ in range(100)] == [[t] for t in range(100)]
    assert threads.front_end.receive(1).outputs[0].request_id == "b"


def test_unread_messages_stay_whole(threads: Threads) -> None:
    """Large messages that nobody reads yet are not written over, also where their array frames are small.

    zmq copies small frames and reports them as sent at once: the document before them is still being read.
    """
    numbers = range(100_000, 100_040)
    num_tokens = 60_000
    for number in numbers:
        column = np.full((1, 64), number, dtype=np.int32)
        logprobs = LogprobsLists(column, column.astype(np.float32), np.array([number], np.int64))
        threads.put(EngineCoreOutput(f"request {number}", [number] * num_tokens, new_logprobs=logprobs))
    for number in numbers:
        (output,) = threads.front_end.receive().outputs
        assert output.request_id == f"request {number}"
        assert output.new_token_ids == [number] * num_tokens
        assert output.new_logprobs is not None
        assert set(output.new_logprobs.token_ids.ravel().tolist()) == {number}


@pytest.mark.parametrize("client_index", [-1, 2])
def test_unknown_client(threads: Threads, client_index: int) -> None:
    """An output for a client that does not exist is dropped; the next one is sent."""
    threads.put(EngineCoreOutput("a", [1]), client_index=client_index)
    threads.put(EngineCoreOutput("b", [1]), client_index=0)
    assert threads.front_end.receive().outputs[0].request_id == "b"


def test_unsendable_output(threads: Threads) -> None:
    """An output that cannot be encoded ends its request, here and in the engine; its neighbours are sent."""
    broken = EngineCoreOutput("broken", [1], kv_transfer_params={"object": object()})
    threads.put(EngineCoreOutput("before", [1]), broken, EngineCoreOutput("after", [2]))
    before, replaced, after = threads.front_end.receive().outputs
    assert (before.request_id, before.new_token_ids) == ("before", [1])
    assert (replaced.request_id, replaced.new_token_ids) == ("broken", [])
    assert replaced.finish_reason is FinishReason.ERROR
    assert (after.request_id, after.finish_reason) == ("after", None)
    assert threads.unsendable.get(timeout=PATIENCE_S) == ["broken"]


def test_unsendable_result(threads: Threads) -> None:
    """A utility result that cannot be encoded fails that call."""
    answer = UtilityOutput(7, result=(None, object()))
    threads.output_queue.put((0, EngineCoreOutputs(timestamp=1.0, utility_output=answer)))
    assert threads.front_end.receive_answer(7).failure_message == "the result cannot be sent"


def test_unsendable_altogether(threads: Threads) -> None:
    """A message that no replacement makes sendable is dropped; the next one is sent."""
    threads.put(EngineCoreOutput("\ud800", [1]))
    threads.put(EngineCoreOutput("b", [1]))
    assert threads.front_end.receive().outputs[0].request_id == "b"


def test_dead_comes_last_and_to_all(threads: Threads) -> None:
    """ENGINE_CORE_DEAD follows what was queued before it, on every client's socket."""
    threads.put(EngineCoreOutput("a", [1]), client_index=1)
    threads.output_queue.put(ENGINE_CORE_DEAD)
    threads.put(EngineCoreOutput("b", [1]), client_index=1)
    assert threads.front_end.receive_dead(0) == []
    assert [message.outputs[0].request_id for message in threads.front_end.receive_dead(1)] == ["a"]


def test_close_sends_what_is_queued(threads: Threads) -> None:
    """Outputs queued before the close arrive after it."""
    for _ in range(1000):
        threads.put(EngineCoreOutput("a", [1]))
    threads.io.close()
    for _ in range(1000):
        assert threads.front_end.receive().outputs[0].request_id == "a"


def test_stopped_input(threads: Threads) -> None:
    """After stop_input what was read is in the queue, and outputs are still sent."""
    threads.io.stop_input()
    threads.io.stop_input()
    threads.put(EngineCoreOutput("a", [1]))
    assert threads.front_end.receive().outputs[0].request_id == "a"


class StoppedIntake(Intake):
    """At its first message it waits until every socket holds another one and its thread has been asked to stop."""

    def __init__(self, sockets: list[zmq.Socket[bytes]]) -> None:
        super().__init__(
            NullEngine(), queue.SimpleQueue(), queue.SimpleQueue(), FrontEnds(len(sockets), time.monotonic())
        )
        front_ends = FrontEnds(len(sockets), time.monotonic())
        self.thread = InputThread(sockets, front_ends, self, lambda _index: None, lambda _reason: None)
        self.is_stopping = threading.Event()
        self.taken: list[int] = []
        self._sockets = sockets

    def take(self, from_client: int, frames: list[bytes]) -> None:
        assert len(frames) == 2
        if not self.taken:
            assert all(dealer.poll(PATIENCE_S * 1000) for dealer in self._sockets)
            threading.Thread(target=self.thread.stop).start()
            assert select.select([self.thread._stop_read], [], [], PATIENCE_S)[0]
            self.is_stopping.set()
        self.taken.append(from_client)


def test_what_has_arrived_before_the_stop_is_taken(front_end: FrontEnd) -> None:
    """Messages that wait in the sockets when the input is stopped are not lost: whoever sent them waits."""
    context = zmq.Context()
    sockets = [context.socket(zmq.DEALER) for _ in front_end.inputs]
    for dealer, server in zip(sockets, front_end.inputs, strict=True):
        dealer.identity = front_end.identity
        dealer.connect(address_of(server))
    intake = StoppedIntake(sockets)
    intake.thread.start(NullEngine().ready_response)
    for client_index in (0, 1):
        front_end.receive_ready_response(client_index)
    front_end.add("first")
    for client_index in (0, 1):
        front_end.add("last", client_index)
    assert intake.is_stopping.wait(PATIENCE_S)
    intake.thread.stop()
    assert sorted(intake.taken) == [0, 0, 1]
    context.term()


def test_a_front_end_that_hangs_up_is_lost(threads: Threads) -> None:
    """Told once it has not come back in time; the other one is still heard and spoken to."""
    threads.front_end.leave(1)
    assert threads.lost.get(timeout=PATIENCE_S) == 1
    assert [threads.front_ends.is_gone(i) for i in range(2)] == [False, True]
    threads.front_end.add("a", client_index=0)
    assert threads.input_queue.get(timeout=PATIENCE_S)[0] is RequestType.ADD
    threads.put(EngineCoreOutput("a", [1]), client_index=0)
    assert threads.front_end.receive(0).outputs[0].request_id == "a"
    assert threads.lost.empty()


def test_a_front_end_that_comes_back_finds_what_was_for_it_but_no_old_statistics(threads: Threads) -> None:
    """Its outputs wait for it, as they end its requests; statistics would pile up for one that never comes."""
    address_in, address_out = threads.front_end.leave(1)
    assert threads.lost.get(timeout=PATIENCE_S) == 1
    for number in range(3):
        threads.output_queue.put((1, EngineCoreOutputs(scheduler_stats=SchedulerStats(step_counter=number))))
    threads.put(EngineCoreOutput("a", [], finish_reason=FinishReason.ABORT), client_index=1)
    threads.put(EngineCoreOutput("b", [1]), client_index=0)
    assert threads.front_end.receive(0).outputs[0].request_id == "b"  # so far the output thread has come
    threads.front_end.come_back(1, address_in, address_out)
    assert threads.front_end.receive(1).outputs[0].finish_reason is FinishReason.ABORT


def test_death_of_the_output_thread(threads: Threads) -> None:
    """An output thread that dies reports it, and tells the clients if it still can."""
    threads.output_queue.put(7)  # type: ignore[arg-type]
    assert "the output thread died" in threads.deaths.get(timeout=PATIENCE_S)
    assert threads.front_end.receive_dead() == []


def test_death_of_the_input_thread(front_end: FrontEnd) -> None:
    """An input thread that dies reports it: a core that hears nothing must not live on."""

    class NoIntake(Intake):
        def take(self, from_client: int, frames: list[bytes]) -> None:
            raise MemoryError(from_client, len(frames))

    threads = Threads(front_end)
    threads.io.close()
    deaths: queue.SimpleQueue[str] = queue.SimpleQueue()
    outputs: OutputQueue = queue.SimpleQueue()
    intake = NoIntake(threads.engine, queue.SimpleQueue(), outputs, FrontEnds(1, now=0.0))
    addresses = EngineAddresses([address_of(front_end.inputs[0])], [address_of(front_end.outputs[0])])
    io = IOThreads(
        addresses, 1, threads.front_ends, intake, outputs, Reports(lambda _ids: None, lambda _index: None, deaths.put)
    )
    io.start(threads.engine.ready_response)
    identity, _ = front_end.inputs[0].recv_multipart()
    front_end.inputs[0].send_multipart([identity, b"\x00", msgspec.msgpack.encode(None)])
    assert "the input thread died: MemoryError(0, 2)" in deaths.get(timeout=PATIENCE_S)
    io.close()


def test_the_kernel_watches_over_tcp_connections(tmp_path: Path) -> None:
    """So that a front end whose machine has vanished is noticed: all four connections of two clients are probed."""
    with FrontEnd(tmp_path, num_clients=2, scheme="tcp") as front_end:
        threads = Threads(front_end)
        for client_index in (0, 1):
            threads.put(EngineCoreOutput("a", [1]), client_index=client_index)
            front_end.receive(client_index)
        ports = {int(address_of(s).rpartition(":")[2]) for s in (*front_end.inputs, *front_end.outputs)}
        connections = [c for c in psutil.Process().net_connections("tcp4") if c.raddr and c.raddr.port in ports]
        probes = [seconds_between_probes(connection.fd) for connection in connections]
        threads.io.close(linger_ms=0)
    assert probes == [5, 5, 5, 5]


def seconds_between_probes(fd: int) -> int:
    """Of an idle connection; 0 = it is not probed."""
    with socket.socket(fileno=os.dup(fd)) as connection:
        if not connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE):
            return 0
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)


def test_close_leaves_no_thread(threads: Threads) -> None:
    """Both threads are gone after the close."""
    threads.io.close()
    assert {"input", "output"}.isdisjoint(thread.name for thread in threading.enumerate())
