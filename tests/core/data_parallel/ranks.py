"""A lockstep group in threads: real loops, sockets and coordinator; fake executors, and a fake group of ranks.

Listener ──▶ Coordinator ◀──▶ Rank 0 … N-1 ◀──▶ a FrontEnd each
"""

import os
import queue
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import zmq

from core.data_parallel.coordinator import Coordinator
from core.data_parallel.fake_group import FakeRankGroup, make_fake_groups
from core.data_parallel.load_report import LoadReport
from core.data_parallel.lockstep_loop import Group, LockstepLoop
from core.data_parallel.waves import EngineWave
from core.executor.fake import FAKE_MODEL, FakeExecutor
from core.front_ends import FrontEnds
from core.intake import InputQueue, Intake, OutputQueue
from core.io_threads import IOThreads, Reports
from core.shutdown import Shutdown
from core.wire.messages import EngineAddresses, RequestType
from core.wire.waves import SUBSCRIBE, CoordinatorAddresses, CoordinatorState, FirstRequest
from tests.core.builders import make_engine
from tests.core.front_end import PATIENCE_S, FrontEnd, address_of

LONGEST = 1_000_000
"""Tokens of a request that no test sees the end of."""
LOCKSTEP_MODEL = msgspec.structs.replace(FAKE_MODEL, needs_lockstep=True, max_model_len=LONGEST)


class CoordinatorThread:
    """A coordinator that listens in ``folder``."""

    def __init__(self, folder: Path, num_engines: int) -> None:
        names = ("to_engines", "from_engines", "front_ends")
        self.coordinator = Coordinator(CoordinatorAddresses(*(f"ipc://{folder}/{n}" for n in names)), num_engines)
        self.addresses = self.coordinator.addresses
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self.coordinator.run, args=(self._stop_read,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.close(self._stop_write)
        self._thread.join(PATIENCE_S)
        os.close(self._stop_read)
        self.coordinator.close()


class Listener:
    """A front end's connection to the coordinator."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XSUB)
        self._socket.rcvtimeo = PATIENCE_S * 1000
        self._socket.connect(address)
        self._socket.send(SUBSCRIBE)
        self.counts: list[list[int]] = []

    def receive(self) -> CoordinatorState:
        state = msgspec.msgpack.decode(self._socket.recv(), type=CoordinatorState)
        self.counts = state.counts if state.counts is not None else self.counts
        return state

    def receive_until_drained(self) -> CoordinatorState:
        """Until nobody runs, and no request is anywhere."""
        while (state := self.receive()).running or not self.counts or any(map(any, self.counts)):
            pass
        return state

    def send_first_request(self, engine: bytes, wave: int) -> None:
        self.send(msgspec.msgpack.encode(FirstRequest(engine, wave)))

    def send(self, message: bytes) -> None:
        self._socket.send(message)

    def close(self) -> None:
        self._context.destroy(linger=0)


class Rank:
    """One core without its process."""

    def __init__(self, folder: Path, ranks: FakeRankGroup, coordinator: CoordinatorAddresses | None) -> None:
        # Before any socket is there, that a failure would leave open.
        self.engine = make_engine(
            num_blocks=LONGEST // 1000,
            block_size=1024,
            max_model_len=LONGEST,
            executor=FakeExecutor(LOCKSTEP_MODEL, kv_cache_bytes=LONGEST * 10),
        )
        self.front_end = FrontEnd(folder, rank=ranks.rank)
        self.ranks = ranks
        self.shutdown = Shutdown()
        self.error: Exception | None = None
        self.input_queue: InputQueue = queue.SimpleQueue()
        output_queue: OutputQueue = queue.SimpleQueue()
        assert self.engine.lockstep is not None
        self.wave = EngineWave()
        self._io = self._make_io(output_queue, coordinator)
        self._loop = LockstepLoop(
            self.engine,
            Group(self.engine.lockstep, ranks, self.wave, coordinator is not None),
            self.input_queue,
            output_queue,
            self.shutdown,
            LoadReport(self.engine.request_counts, self.wave, output_queue),
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _make_io(self, output_queue: OutputQueue, coordinator: CoordinatorAddresses | None) -> IOThreads:
        (input_socket,), (output_socket,) = self.front_end.inputs, self.front_end.outputs
        addresses = EngineAddresses([address_of(input_socket)], [address_of(output_socket)])
        if coordinator is not None:
            addresses.coordinator_input = coordinator.coordinator_input
            addresses.coordinator_output = coordinator.coordinator_output
        front_ends = FrontEnds(1, time.monotonic())
        intake = Intake(self.engine, self.input_queue, output_queue, front_ends)
        reports = Reports(lambda _ids: None, lambda _index: None, lambda _reason: None)
        return IOThreads(addresses, self.ranks.rank, front_ends, intake, output_queue, reports)

    def _run(self) -> None:
        try:
            self.shutdown.start_running()
            self._io.start(self.engine.ready_response)
            self._loop.run()
            self._io.stop_input()
            self._loop.finish()
        except Exception as error:
            self.error = error
        finally:
            self.ranks.close()
            self._io.close()

    def stop(self) -> None:
        """As SIGTERM would."""
        self.shutdown.request()
        self.input_queue.put((RequestType.WAKEUP, None))

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


class LockstepRanks:
    """The whole group. Leaving it stops every rank, and raises what one of them has died of."""

    def __init__(self, folder: Path, num_engines: int, with_coordinator: bool = True) -> None:
        self._cleanup = ExitStack()
        addresses = None
        if with_coordinator:
            coordinator = CoordinatorThread(folder, num_engines)
            self._cleanup.callback(coordinator.close)
            addresses = coordinator.addresses
            self.listener = Listener(addresses.frontend_stats_publish_address)
            self._cleanup.callback(self.listener.close)
        self.ranks = []
        for group in make_fake_groups(num_engines):
            (rank_folder := folder / str(group.rank)).mkdir()
            self.ranks.append(Rank(rank_folder, group, addresses))
            self._cleanup.callback(self.ranks[-1].front_end.close)
        for rank in self.ranks:
            rank.front_end.receive_ready_response()

    def call_all(self, call_id: int, method: str, *args: Any) -> None:
        for rank in self.ranks:
            rank.front_end.call(call_id, method, *args)

    def receive_answers(self, call_id: int) -> list[str | None]:
        """What went wrong at each rank."""
        return [rank.front_end.receive_answer(call_id).failure_message for rank in self.ranks]

    def stop(self) -> None:
        for rank in self.ranks:
            rank.stop()
        for rank in self.ranks:
            rank.join()

    def __enter__(self) -> "LockstepRanks":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self._cleanup.close()
        for rank in self.ranks:
            if rank.error is not None:
                raise rank.error
