"""The coordinator of data-parallel engines, a process beside them.

    engines                          coordinator                         front ends
    XSUB ◀── READY, START_DP_WAVE ── XPUB │ XPUB ── CoordinatorState ──▶ XSUB
    PUSH ─── counts, start_wave, ──▶ PULL │      ◀── FirstRequest ──────
             wave_complete

One thread, no state but the wave and the counts. It outlives engines and front ends that come back: whoever
subscribes again hears READY, or the state, again. Nothing that arrives can end it.
"""

import logging
import time
from collections.abc import Callable

import msgspec
import zmq

from core.data_parallel.load_board import Counts, LoadBoard
from core.data_parallel.waves import CoordinatorWave
from core.logs import ThrottledLog
from core.wire.codec import Decoder, WireError
from core.wire.curve import CurveServer, Doorkeeper
from core.wire.messages import EngineCoreOutputs, RequestType
from core.wire.waves import (
    COORDINATOR_READY,
    MAX_WAVE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    CoordinatorAddresses,
    CoordinatorState,
    FirstRequest,
    StartWave,
)

logger = logging.getLogger(__name__)


class Coordinator:
    """Listening when made, serving in ``run``. ``addresses``: with the real ports."""

    def __init__(self, addresses: CoordinatorAddresses, num_engines: int, curve: CurveServer | None = None) -> None:
        """Raises zmq.ZMQError if it cannot listen at one of ``addresses``. With ``curve`` all are asked for keys."""
        self._context = zmq.Context()
        self._curve = curve
        self._doorkeeper = None if curve is None else Doorkeeper(self._context, curve)
        self._to_engines = self._bind(zmq.XPUB, addresses.coordinator_input)
        self._from_engines = self._bind(zmq.PULL, addresses.coordinator_output)
        self._front_ends = self._bind(zmq.XPUB, addresses.frontend_stats_publish_address)
        sockets = (self._to_engines, self._from_engines, self._front_ends)
        self.addresses = CoordinatorAddresses(*(socket.getsockopt_string(zmq.LAST_ENDPOINT) for socket in sockets))
        self._wave = CoordinatorWave()
        self._board = LoadBoard(num_engines, time.monotonic())
        self._num_subscribed = 0
        self._outputs_decoder = Decoder(EngineCoreOutputs)
        self._first_request_decoder = Decoder(FirstRequest)
        self._dropped = ThrottledLog(logger)

    def run(self, stop_fd: int) -> None:
        """Serve until ``stop_fd`` can be read, or has ended."""
        takers = {
            self._to_engines: self._take_subscription,
            self._from_engines: self._take_from_engine,
            self._front_ends: self._take_from_front_end,
        }
        poller = zmq.Poller()
        for source in (*takers, stop_fd):
            poller.register(source, zmq.POLLIN)
        while stop_fd not in (readable := dict(poller.poll(self._ms_until_due()))):
            for socket, take in takers.items():
                if socket in readable:
                    self._take(take, socket.recv_multipart())
            if self._board.is_due_at() <= time.monotonic():
                self._publish(self._board.publish(time.monotonic()))

    def close(self) -> None:
        if self._doorkeeper is not None:
            self._doorkeeper.stop()
        self._context.destroy(linger=0)

    def _bind(self, kind: int, address: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set_hwm(0)
        socket.ipv6 = "[" in address
        if kind == zmq.XPUB:
            socket.xpub_verbose = True  # Each subscriber is heard of, not just the first.
        if self._curve is not None:
            self._curve.protect(socket)
        socket.bind(address)
        return socket

    def _ms_until_due(self) -> int:
        return max(0, 1 + int((self._board.is_due_at() - time.monotonic()) * 1000))

    def _take(self, take: Callable[[list[bytes]], None], frames: list[bytes]) -> None:
        before = self._wave.number, self._wave.is_running
        try:
            take(frames)
        except WireError as error:
            self._dropped.warning("dropped a message: %s", error)
        if before != (self._wave.number, self._wave.is_running):
            self._publish(None)

    def _take_subscription(self, frames: list[bytes]) -> None:
        if frames != [SUBSCRIBE]:
            return
        self._num_subscribed += 1
        if self._num_subscribed == self._board.num_engines:
            logger.info("all %d engines have come", self._num_subscribed)
        if self._has_all_engines:
            self._to_engines.send(COORDINATOR_READY)
            if self._wave.is_running:  # An engine that has just come has missed its START.
                self._start(StartWave(self._wave.number))

    @property
    def _has_all_engines(self) -> bool:
        return self._num_subscribed >= self._board.num_engines

    def _take_from_engine(self, frames: list[bytes]) -> None:
        message = self._outputs_decoder.decode(frames)
        engine = message.engine_index
        if not 0 <= engine < self._board.num_engines:
            raise WireError(f"engine_index must be in [0, {self._board.num_engines - 1}], got {engine}")
        if (stats := message.scheduler_stats) is not None:
            step = stats.current_wave, stats.step_counter
            self._board.take(engine, stats.num_waiting_reqs, stats.num_running_reqs, step, time.monotonic())
        if message.wave_complete is not None:
            self._wave.take_complete(_checked_wave(message.wave_complete))
        elif message.start_wave is not None:
            self._start(self._wave.take_start(engine, _checked_wave(message.start_wave)))

    def _take_from_front_end(self, frames: list[bytes]) -> None:
        if frames == [SUBSCRIBE]:
            self._publish(self._board.publish(time.monotonic()))
        elif frames != [UNSUBSCRIBE]:
            first = self._first_request_decoder.decode(frames)
            engine = int.from_bytes(first.engine, "little") if isinstance(first.engine, bytes) else first.engine
            self._start(self._wave.take_first_request(engine, first.wave))

    def _start(self, wave: StartWave | None) -> None:
        if wave is not None and self._has_all_engines:
            self._to_engines.send_multipart([RequestType.START_DP_WAVE.value, msgspec.msgpack.encode(wave)])

    def _publish(self, counts: Counts | None) -> None:
        state = CoordinatorState(counts, self._wave.number, self._wave.is_running)
        self._front_ends.send(msgspec.msgpack.encode(state))


def _checked_wave(wave: int) -> int:
    if not 0 <= wave <= 2 * MAX_WAVE:
        raise WireError(f"a wave must be in [0, {2 * MAX_WAVE}], got {wave}")
    return wave
