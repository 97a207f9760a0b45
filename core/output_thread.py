"""The output thread: encodes what the output queue holds and sends it to the client it is for."""

import contextlib
import logging
import threading
from collections.abc import Callable

import setproctitle
import zmq

from core.front_ends import FrontEnds
from core.intake import OutputQueue
from core.logs import ThrottledLog
from core.replies import finish_reply, utility_failure
from core.send_buffers import SendBuffers
from core.wire.codec import Encoder, Frame
from core.wire.messages import ENGINE_CORE_DEAD, EngineCoreOutputs, FinishReason
from core.wire.version import WireVersion, shaped_outputs
from core.wire.waves import COORDINATOR_CLIENT_INDEX

logger = logging.getLogger(__name__)

LINGER_MS = 4000
"""How long the last outputs may still be on their way when the core exits."""
JOIN_TIMEOUT_S = 5.0


class OutputThread:
    """Encodes what the queue holds and sends it to the client it is for."""

    def __init__(
        self,
        sockets: list[zmq.Socket[bytes]],
        output_queue: OutputQueue,
        front_ends: FrontEnds,
        engine_index: int,
        on_unsendable: Callable[[list[str]], None],
        on_death: Callable[[str], None],
        coordinator: zmq.Socket[bytes] | None = None,
    ) -> None:
        self._sockets = sockets
        self._coordinator = coordinator
        self._buffers = [SendBuffers() for _ in sockets]
        self._queue = output_queue
        self._front_ends = front_ends
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
        setproctitle.setthreadtitle("core-output")
        try:
            self._send_until_stopped()
        except BaseException as error:  # When native code panics, that is no Exception.
            logger.exception("the output thread died")
            self._on_death(f"the output thread died: {error!r}")
            with contextlib.suppress(zmq.ZMQError):
                self._send_dead()
        finally:
            for client_index, socket in enumerate(self._sockets):
                # Nobody takes what is left for one that is gone.
                socket.close(0 if self._front_ends.is_gone(client_index) else self._linger_ms)
            if self._coordinator is not None:
                self._coordinator.close(self._linger_ms)

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
        if client_index == COORDINATOR_CLIENT_INDEX and self._coordinator is not None:
            outputs.engine_index = self._engine_index
            self._coordinator.send_multipart(self._encoder.encode(outputs))
            return
        if not 0 <= client_index < len(self._sockets):
            self._dropped.warning("dropped an output for client %d, there are %d", client_index, len(self._sockets))
            return
        if not (outputs.outputs or outputs.utility_output) and self._front_ends.is_gone(client_index):
            return  # Statistics would wait for it for ever.
        outputs.engine_index = self._engine_index
        buffers = self._buffers[client_index]
        buffer = buffers.take()
        try:
            document_and_arrays = self._encode(outputs, self._front_ends.version_of(client_index), buffer)
        except Exception as error:
            buffers.give_back(buffer)
            self._dropped.warning("dropped an output for client %d that cannot be sent: %s", client_index, error)
            return
        # Each frame is tracked by itself: zmq copies small ones, and says so at once, while it still reads the others.
        frames = [zmq.Frame(part, track=True) for part in document_and_arrays]
        self._sockets[client_index].send_multipart(frames, copy=False)
        buffers.lend(buffer, zmq.MessageTracker(*frames))

    def _encode(self, outputs: EngineCoreOutputs, version: WireVersion | None, buffer: bytearray) -> list[Frame]:
        try:
            return self._encoder.encode_into(shaped_outputs(outputs, version), buffer)
        except Exception as error:
            unsendable = self._replace_unsendable(outputs)
            logger.error("cannot send %s: %s", unsendable, error)
            return self._encoder.encode_into(shaped_outputs(outputs, version), buffer)

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
