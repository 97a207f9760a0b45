"""EngineCoreProc: the engine-core process, from the first HELLO to the last output.

 front end                                core process
┌──────────┐  HELLO ─▶ ◀─ INIT   ┌──────────────────────────────────────────────────────────────┐
│handshake │◀────────────────────│ main thread: greet, load the model, READY, then the busy loop │
└──────────┘  READY              │                                                              │
┌──────────┐  ADD ABORT UTILITY  │ input thread ─▶ input_queue  ─▶ ┌─────────────────────────┐  │
│ ROUTER   │────────────────────▶│            └──▶ aborts_queue ─▶ │ handle_shutdown         │  │
└──────────┘  gone: end or wait  │            FRONT_END_LOST       │ process_input_queue     │  │
┌──────────┐  EngineCoreOutputs  │                                 │ process_engine_step     │  │
│ PULL     │◀────────────────────│ output thread ◀─ output_queue ◀─└─────────────────────────┘  │
└──────────┘  ENGINE_CORE_DEAD   │ watcher thread: signals, lifeline ─▶ WAKEUP in input_queue   │
                                 └──────────────────────────────────────────────────────────────┘

who            owns                                          may also touch
main thread    engine, shutdown state                        the queues
input thread   DEALER sockets and their monitors, decoders   engine.preprocess_add_request, the queues, front_ends
output thread  PUSH sockets, encoder                         front_ends, output_queue; input_queue to abort requests
"""

import contextlib
import dataclasses
import functools
import gc
import logging
import os
import queue
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import msgspec
import setproctitle

from core.busy_loop import BusyLoop
from core.data_parallel.load_report import LoadReport
from core.data_parallel.lockstep_loop import Group, LockstepLoop
from core.data_parallel.membership import joined_group
from core.data_parallel.waves import EngineWave
from core.engine_interface import Engine, EngineFactory
from core.front_ends import FrontEnds
from core.intake import InputQueue, Intake, LostFrontEnd, OutputQueue
from core.io_threads import IOThreads, Reports
from core.output_thread import LINGER_MS
from core.shutdown import CLEANUP_GRACE_S, ORPHAN_GRACE_S, Shutdown, ShutdownWatcher, exit_by_force_after
from core.wire.handshake import CoreHandshake, HandshakeConfig, HandshakeError
from core.wire.messages import ENGINE_CORE_DEAD, EngineAddresses, ParallelConfig, RequestType
from core.wire.tensor_ipc import TensorReceiver
from core.wire.version import WireVersion, introduction

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProcessConfig:
    """``lifeline_fd``: read end of a pipe that ends with the gateway; None: nobody's end is this core's end.

    ``wire_version`` None: that of each front end, once a request of it tells. ``survive_frontend``: when the last front
    end is gone, wait for the next one instead of going too.
    ``tensor_ipc_fd``: inherited end of the channel by which the gateway hands large tensors over; None: they come with
    their messages.
    """

    handshake: HandshakeConfig
    shutdown_timeout_s: float = 0.0
    lifeline_fd: int | None = None
    wire_version: WireVersion | None = None
    survive_frontend: bool = False
    tensor_ipc_fd: int | None = None


class FrontEndsGoneError(Exception):
    """There is nobody left to serve."""


class EngineCoreProc:
    """One engine between its queues. ``run`` is the process's life; ``wake`` and ``fail`` may come from any thread."""

    def __init__(self, config: ProcessConfig, build_engine: EngineFactory, shutdown: Shutdown) -> None:
        self._handshake = config.handshake
        self._wire_version = config.wire_version
        self._survives_front_ends = config.survive_frontend
        self._tensors = _receive_tensors(config.tensor_ipc_fd)
        self._build_engine = build_engine
        self._shutdown = shutdown
        self._input_queue: InputQueue = queue.SimpleQueue()
        self._output_queue: OutputQueue = queue.SimpleQueue()
        self._cleanup = contextlib.ExitStack()
        self._engine: Engine | None = None
        self._parallel_config = ParallelConfig()

    def run(self) -> None:
        """Serve until a shutdown is complete.

        Raises HandshakeError without a front end, FrontEndsGoneError when the last one is gone, SystemExit if a signal
        comes while nobody is served, and whatever ends the engine, after every front end was told ENGINE_CORE_DEAD.
        """
        with self._cleanup:
            self._serve_front_ends(self._handshake)
            while not self._shutdown.requested:
                if not self._survives_front_ends:
                    raise FrontEndsGoneError("every front end is gone")
                self._forget_front_ends()
                self._serve_front_ends(dataclasses.replace(self._handshake, init_timeout_s=None))

    def wake(self) -> None:
        """Let the busy loop look at the shutdown state."""
        self._input_queue.put((RequestType.WAKEUP, None))

    def fail(self, reason: str) -> None:
        """The core cannot go on: end it as if a step had raised."""
        self._input_queue.put((RequestType.EXECUTOR_FAILED, reason))

    def _serve_front_ends(self, config: HandshakeConfig) -> None:
        """Find front ends and serve them, until a shutdown is complete or the last of them is gone."""
        with contextlib.ExitStack() as session:
            with CoreHandshake(config) as handshake:
                init = handshake.greet()
                setproctitle.setproctitle(process_title(config.rank, init.parallel_config))
                engine = self._engine_for(init.parallel_config)
                group = session.enter_context(joined_group(engine, init, config.rank))
                io = session.enter_context(self._io_threads(engine, init.addresses, group))
                # Before READY: a front end that has it may tell this process to end, which is then a shutdown.
                self._shutdown.start_running()
                handshake.say_ready(init.parallel_config)
            self._serve(self._make_loop(engine, init.addresses, group), io)

    def _engine_for(self, parallel_config: ParallelConfig) -> Engine:
        """The engine, loaded for the first front end that asks."""
        if self._engine is None:
            self._engine, self._parallel_config = self._load_engine(parallel_config), parallel_config
            self._cleanup.callback(self._engine.shutdown)
            self._cleanup.enter_context(frozen_garbage())
        if parallel_config != self._parallel_config:
            raise HandshakeError(f"loaded for {self._parallel_config}, and now INIT says {parallel_config}")
        return self._engine

    def _load_engine(self, parallel_config: ParallelConfig) -> Engine:
        logger.info("loading the engine")
        try:
            return self._build_engine(parallel_config, lambda: self.fail("the executor failed"))
        except Exception as error:
            # A ValueError is about the settings or the files: its text, which the exit logs, is enough.
            if not isinstance(error, ValueError):
                logger.exception("the engine failed to start")
            raise

    @contextlib.contextmanager
    def _io_threads(self, engine: Engine, addresses: EngineAddresses, group: Group | None) -> Iterator[IOThreads]:
        rank, version = self._handshake.rank, self._wire_version
        front_ends = FrontEnds(len(addresses.outputs), time.monotonic(), version)
        intake = Intake(engine, self._input_queue, self._output_queue, front_ends, self._tensors)
        reports = Reports(self._abort, functools.partial(self._lose_front_end, front_ends), self.fail)
        io = IOThreads(addresses, rank, front_ends, intake, self._output_queue, reports, self._handshake.curve)
        response = msgspec.structs.replace(engine.ready_response, data_parallel_size=group.ranks.size if group else 1)
        try:
            io.start(introduction(response, version, rank, addresses.frontend_stats_publish_address))
            yield io
        finally:
            io.close(0 if self._shutdown.orphaned or front_ends.all_gone else LINGER_MS)

    def _make_loop(self, engine: Engine, addresses: EngineAddresses, group: Group | None) -> BusyLoop:
        wave = group.wave if group else EngineWave()
        report = LoadReport(engine.request_counts, wave, self._output_queue) if addresses.coordinator_output else None
        if group is None:
            return BusyLoop(engine, self._input_queue, self._output_queue, self._shutdown, report)
        return LockstepLoop(engine, group, self._input_queue, self._output_queue, self._shutdown, report)

    def _serve(self, loop: BusyLoop, io: IOThreads) -> None:
        try:
            logger.info("ready")
            loop.run()
            io.stop_input()
            loop.finish()
        except Exception:
            self._shutdown.end_within(CLEANUP_GRACE_S)
            self._output_queue.put(ENGINE_CORE_DEAD)
            logger.exception("the engine died")
            raise

    def _forget_front_ends(self) -> None:
        """Be as after the load. Answers that are still to come reach nobody: they go to the old queue."""
        assert self._engine is not None, "served"
        logger.warning("every front end is gone, the core stays for the next")
        self._shutdown.stop_running()
        self._engine.reset()
        self._output_queue = queue.SimpleQueue()

    def _lose_front_end(self, front_ends: FrontEnds, client_index: int) -> None:
        if front_ends.all_gone and not self._survives_front_ends:
            self._shutdown.end_within(ORPHAN_GRACE_S)
        lost = LostFrontEnd(client_index, front_ends.all_gone)
        self._input_queue.put((RequestType.FRONT_END_LOST, lost))

    def _abort(self, request_ids: list[str]) -> None:
        self._input_queue.put((RequestType.ABORT, request_ids))


def _receive_tensors(channel_fd: int | None) -> TensorReceiver | None:
    return None if channel_fd is None else TensorReceiver(socket.socket(fileno=channel_fd))


@contextlib.contextmanager
def frozen_garbage() -> Iterator[None]:
    """What was loaded lives as long as the process: keep the collector from walking it again and again."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def process_title(rank: int, group: ParallelConfig) -> str:
    """As vLLM names its cores."""
    is_alone = rank == 0 and group.data_parallel_size == 1
    return "sluicegate: EngineCore" if is_alone else f"sluicegate: EngineCore_DP{rank}"


def run_engine_core(config: ProcessConfig, build_engine: EngineFactory) -> int:
    """The whole life of a core process: its exit code, 0 after a shutdown that was asked for."""
    setproctitle.setproctitle(process_title(config.handshake.rank, ParallelConfig()))
    shutdown = Shutdown(config.shutdown_timeout_s, exit_by_force_after)
    core = EngineCoreProc(config, build_engine, shutdown)
    ShutdownWatcher(shutdown, core.wake, config.lifeline_fd).start()
    try:
        core.run()
    except Exception as error:
        logger.error("exiting: %s", error)
        return 1
    logger.info("shut down")
    return 0


def exit_at_once(code: int) -> NoReturn:
    """End the process of a core that has run: its interpreter, with torch in it, would take seconds to tear down."""
    logging.shutdown()
    os._exit(code)
