"""The two threads between the sockets and the queues. They encode and decode while the model runs.

    front end                     core process
    ROUTER ─────▶ DEALER ─▶ input thread ─▶ input_queue, aborts_queue ─▶ busy loop
    (one pair of sockets per front-end process)                              │
    PULL   ◀───── PUSH ◀── output thread ◀── output_queue ◀──────────────────┘

Each thread owns its sockets, from the moment it starts, and its codec; only the queues are shared. A thread that dies
says so through ``on_death``: a core that cannot hear or speak must not live on.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import zmq

from core.intake import Intake, OutputQueue
from core.logs import ThrottledLog
from core.replies import finish_reply, utility_failure
from core.send_buffers import SendBuffers
from core.wire.codec import Encoder
from core.wire.handshake import engine_identity
from core.wire.messages import (
    ENGINE_CORE_DEAD,
    EngineAddresses,
    EngineCoreOutputs,
    EngineReadyResponse,
    FinishReason,
)

logger = logging.getLogger(__name__)

LINGER_MS = 4000
"""How long the last outputs may still be on their way when the core exits."""
LAST_READ_S = 1.0
"""A front end that never ceases to send does not hold up the end for longer."""
JOIN_TIMEOUT_S = 5.0
OnDeath = Callable[[str], None]


class IOThreads:
    """Both threads and their sockets. Connected when made, running from ``start`` to ``close``."""

    def __init__(
        self,
        addresses: EngineAddresses,
        rank: int,
        intake: Intake,
        output_queue: OutputQueue,
        on_unsendable: Callable[[list[str]], None],
        on_death: OnDeath,
    ) -> None:
        self._context = zmq.Context()
        outputs = [_connect(self._context, zmq.PUSH, address) for address in addresses.outputs]
        identity = engine_identity(rank)
        inputs = [_connect(self._context, zmq.DEALER, address, identity) for address in addresses.inputs]
        self._output = OutputThread(outputs, output_queue, rank, on_unsendable, on_death)
        self._input = InputThread(inputs, intake, on_death)

    def start(self, ready_response: EngineReadyResponse) -> None:
        """Introduce the core on every input socket, then listen and speak."""
        self._output.start()
        self._input.start(ready_response)

    def stop_input(self) -> None:
        """No input comes after this: what has arrived is in the input queue. May be called twice."""
        self._input.stop()

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """Send what is in the output queue, give it ``linger_ms`` to arrive, and close everything."""
        self._input.stop()
        if self._output.stop(linger_ms):
            self._context.destroy(linger_ms)


def _connect(
    context: zmq.Context[zmq.Socket[bytes]], kind: int, address: str, identity: bytes | None = None
) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    # Unbounded, as the protocol has it: a front end that stops reading must not stop the busy loop for the others.
    socket.set_hwm(0)
    socket.linger = LINGER_MS
    socket.ipv6 = "[" in address
    # Notices within 20 s that a peer's machine is gone. Not with zmq's heartbeats: the zmq of genuine Rust front ends
    # hangs up on a PING.
    socket.tcp_keepalive, socket.tcp_keepalive_cnt = 1, 3
    socket.tcp_keepalive_idle = socket.tcp_keepalive_intvl = 5
    if identity is not None:
        socket.identity = identity
    socket.connect(address)
    return socket


class InputThread:
    """Reads every input socket and hands each message to the intake."""

    def __init__(self, sockets: list[zmq.Socket[bytes]], intake: Intake, on_death: OnDeath) -> None:
        self._sockets = sockets
        self._intake = intake
        self._on_death = on_death
        self._stop_read, stop_write = os.pipe()
        self._stop_write = os.fdopen(stop_write, "wb")
        self._thread = threading.Thread(target=self._run, name="input", daemon=True)

    def start(self, ready_response: EngineReadyResponse) -> None:
        for socket in self._sockets:
            socket.send_multipart(Encoder().encode(ready_response))
        self._thread.start()

    def stop(self) -> None:
        """Return when the thread has ended. May be called twice."""
        self._stop_write.close()
        if self._thread.ident is not None:
            self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._read_until_stopped()
        except Exception as error:
            logger.exception("the input thread died")
            self._on_death(f"the input thread died: {error!r}")
        finally:
            os.close(self._stop_read)
            for socket in self._sockets:
                socket.close()

    def _read_until_stopped(self) -> None:
        poller = zmq.Poller()
        for source in (*self._sockets, self._stop_read):
            poller.register(source, zmq.POLLIN)
        while self._stop_read not in (readable := dict(poller.poll())):
            self._take_one_each(readable)
        poller.unregister(self._stop_read)
        deadline = time.monotonic() + LAST_READ_S
        while time.monotonic() < deadline and (readable := dict(poller.poll(0))):
            self._take_one_each(readable)

    def _take_one_each(self, readable: dict[Any, int]) -> None:
        for client_index, socket in enumerate(self._sockets):
            if socket in readable:
                self._intake.take(client_index, socket.recv_multipart())


class OutputThread:
    """Encodes what the queue holds and sends it to the client it is for."""

    def __init__(
        self,
        sockets: list[zmq.Socket[bytes]],
        output_queue: OutputQueue,
        engine_index: int,
        on_unsendable: Callable[[list[str]], None],
        on_death: OnDeath,
    ) -> None:
        self._sockets = sockets
        self._buffers = [SendBuffers() for _ in sockets]
        self._queue = output_queue
        self._engine_index = engine_index
        self._on_unsendable = on_unsendable
        self._on_death = on_death
        self._linger_ms = LINGER_MS
        self._encoder = Encoder()
        self._dropped = ThrottledLog(logger)
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, linger_ms: int) -> bool:
        """Send what the queue holds and end the thread; whether it has ended."""
        self._linger_ms = linger_ms
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join(JOIN_TIMEOUT_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._send_until_stopped()
        except Exception as error:
            logger.exception("the output thread died")
            self._on_death(f"the output thread died: {error!r}")
            with contextlib.suppress(zmq.ZMQError):
                self._send_dead()
        finally:
            for socket in self._sockets:
                socket.close(self._linger_ms)

    def _send_until_stopped(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, bytes):
                self._send_dead()
                return
            self._send(*item)

    def _send_dead(self) -> None:
        for socket in self._sockets:
            socket.send(ENGINE_CORE_DEAD)

    def _send(self, client_index: int, outputs: EngineCoreOutputs) -> None:
        if not 0 <= client_index < len(self._sockets):
            self._dropped.warning("dropped an output for client %d, there are %d", client_index, len(self._sockets))
            return
        outputs.engine_index = self._engine_index
        buffers = self._buffers[client_index]
        buffer = buffers.take()
        try:
            document_and_arrays = self._encode(outputs, buffer)
        except Exception as error:
            buffers.give_back(buffer)
            self._dropped.warning("dropped an output for client %d that cannot be sent: %s", client_index, error)
            return
        # Each frame is tracked by itself: zmq copies small ones, and says so at once, while it still reads the others.
        frames = [zmq.Frame(part, track=True) for part in document_and_arrays]
        self._sockets[client_index].send_multipart(frames, copy=False)
        buffers.lend(buffer, zmq.MessageTracker(*frames))

    def _encode(self, outputs: EngineCoreOutputs, buffer: bytearray) -> list[bytes | bytearray | memoryview]:
        try:
            return self._encoder.encode_into(outputs, buffer)
        except Exception as error:
            unsendable = self._replace_unsendable(outputs)
            logger.error("cannot send %s: %s", unsendable, error)
            return self._encoder.encode_into(outputs, buffer)

    def _replace_unsendable(self, outputs: EngineCoreOutputs) -> list[str]:
        """Put an error in place of each part that cannot be encoded; the ids of the requests this ended."""
        ended = []
        for position, output in enumerate(outputs.outputs):
            if not self._is_sendable(output):
                ended.append(output.request_id)
                (outputs.outputs[position],) = finish_reply(output.request_id, FinishReason.ERROR).outputs
        if outputs.utility_output is not None and not self._is_sendable(outputs.utility_output):
            failure = utility_failure(outputs.utility_output.call_id, "the result cannot be sent")
            outputs.utility_output = failure.utility_output
        self._on_unsendable(ended)
        return ended

    def _is_sendable(self, part: object) -> bool:
        try:
            self._encoder.encode(part)
        except Exception:
            return False
        return True
