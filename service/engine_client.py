"""The gateway's end of the wire: the only place in ``service`` that touches zmq.

    add, abort, call_utility ──ROUTER──▶ core        every send completes at once: the queue is zmq's, nobody awaits
    OutputStream ◀── reader ◀──PULL──── core         the reader is the only one to put into a stream
    ready       ◀── reader ◀──ROUTER─── core         a core's first message teaches the ROUTER its identity
    lost        ◀── reader ◀──PAIR──── zmq monitor   a peer of the ROUTER hung up: is the core still there?
                ◀── reader ◀──PAIR──── zmq monitor   a peer of the PULL hung up: it has said its last words

Everything runs on the event loop. Sending is synchronous on purpose: a request cannot be cancelled half submitted.

The sockets are read by callbacks on their file descriptors, not by ``zmq.asyncio``: that one makes a future and a
task switch for every message, where a callback takes all that have come in one turn. The descriptor announces only
that *something* changed (its signal may also be used up by a send), so every read goes on until the socket is empty.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from core.wire.codec import Decoder, Encoder, WireError
from core.wire.handshake import HandshakeServer, engine_identity
from core.wire.messages import (
    ENGINE_CORE_DEAD,
    EngineAddresses,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineReadyResponse,
    FinishReason,
    RequestType,
    UtilityCall,
)
from core.wire.version import WireVersion, shaped_request, version_of_core
from service.engine_stats import EngineStats
from service.errors import Unavailable
from service.metrics.requests import RequestMetrics
from service.output_decoder import OutputDecoder
from service.output_stream import OutputStream
from service.utility_calls import UtilityCalls

logger = logging.getLogger(__name__)

_MESSAGES_PER_TURN = 16
"""The reader lets others run after this many messages."""
_MAX_SIZE = 2**31 - 1
_PROBES_AFTER_S = (0.1, 1.0)
"""When to ask zmq whether the core is gone after some peer hung up: it may take a moment to know."""
_LAST_WORDS_TIMEOUT_S = 1.0
"""For the connection of a core that is gone to end. What the core has sent comes before that."""


class EngineAddressError(Exception):
    """The core's sockets cannot be bound where they should be; the text names the address."""


class EngineClient:
    """Sends requests to one core and hands its outputs to their streams.

    ``ready`` resolves with the core's first message, ``lost`` with the reason when the core is gone. From then on
    every stream, utility call and ``add`` raises Unavailable.
    """

    def __init__(self, input_address: str, output_address: str, heartbeat_timeout_s: float = 10.0) -> None:
        """Bind both addresses, ``ipc://`` or ``tcp://`` (port 0 = any). Raises EngineAddressError if that fails.

        A core that tcp leads to is lost when its host has been silent for ``heartbeat_timeout_s``.
        """
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[EngineReadyResponse] = self._loop.create_future()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self.stats = EngineStats()
        self.requests = RequestMetrics()
        self.num_coalesced_outputs = 0
        """Outputs that were merged with one that its caller had not taken yet."""
        self._streams: dict[str, OutputStream] = {}
        self._utility_calls = UtilityCalls()
        self._encoder = Encoder()
        self._wire_version = WireVersion.V0_25
        self._output_decoder = OutputDecoder()
        self._ready_decoder = Decoder(EngineReadyResponse)
        self._identity = engine_identity(0)
        self._heartbeat_timeout_ms = round(heartbeat_timeout_s * 1000)
        self._speakers: set[int] = set()
        self._farewell: str | None = None
        self._context = zmq.Context()
        self._requests = self._bind(zmq.ROUTER, input_address)
        self._outputs = self._bind(zmq.PULL, output_address)
        self._hangups = self._requests.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._speaker_events = self._outputs.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._readers: dict[zmq.Socket[bytes], Callable[[list[bytes]], None]] = {
            self._requests: self._on_ready_response,
            self._outputs: self._on_output,
            self._hangups: self._on_hangup,
            self._speaker_events: self._on_speaker_event,
        }
        for socket in self._readers:
            self._loop.add_reader(socket.FD, self._read, socket)
            self._loop.call_soon(self._read, socket)  # a descriptor stays silent until its socket was once found empty

    def __repr__(self) -> str:
        state = "lost" if self.lost.done() else "ready" if self.ready.done() else "waiting for the core"
        return f"EngineClient({state}, {len(self._streams)} requests, {len(self._utility_calls)} utility calls)"

    @property
    def addresses(self) -> EngineAddresses:
        """Where the core is to connect."""
        return EngineAddresses(inputs=[_endpoint(self._requests)], outputs=[_endpoint(self._outputs)])

    @property
    def num_requests(self) -> int:
        """Requests in the stream table, finished ones included until their caller closes."""
        return len(self._streams)

    def handshake(self, address: str, num_local_engines: int) -> HandshakeServer:
        """A handshake that sends cores to these sockets. Raises HandshakeError if ``address`` cannot be bound."""
        context = zmq.asyncio.Context(self._context)
        return HandshakeServer(context, address, self.addresses, num_local_engines=num_local_engines)

    def add(self, requests: Sequence[EngineCoreRequest]) -> OutputStream:
        """Submit ``requests``, whose outputs all come through the one stream returned. The caller must close it.

        Raises Unavailable if there is no core.
        """
        stream = OutputStream(request.request_id for request in requests)
        try:
            for request in requests:
                self._streams[request.request_id] = stream
                self._send(RequestType.ADD, shaped_request(request, self._wire_version))
        except BaseException:
            self.close_stream(stream)
            raise
        self.requests.add(requests)
        return stream

    def abort(self, request_ids: Sequence[str]) -> None:
        """End live requests here and in the core: their streams get a last output, ABORT. Unknown ids are ignored."""
        live = [i for i in request_ids if (stream := self._streams.get(i)) is not None and i in stream.unfinished]
        for request_id in live:
            self._streams[request_id].put(EngineCoreOutput(request_id, [], finish_reason=FinishReason.ABORT))
        self.requests.end(live, FinishReason.ABORT)
        self._send_abort(live)

    def stop(self, stream: OutputStream, request_id: str, reason: FinishReason) -> None:
        """For the caller ``request_id`` has ended: the core need not go on with it."""
        stream.finish(request_id)
        self.requests.end([request_id], reason)
        self._send_abort([request_id])

    def close_stream(self, stream: OutputStream, reason: FinishReason = FinishReason.ABORT) -> None:
        """Forget the requests of ``stream`` and abort those that have not ended, which ``reason`` ends.

        Never raises; may be called twice.
        """
        self.requests.end(stream.request_ids, reason)
        for request_id in stream.request_ids:
            self._streams.pop(request_id, None)
        self._send_abort(sorted(stream.unfinished))
        stream.unfinished.clear()

    async def call_utility(self, method: str, *args: Any) -> Any:
        """Call ``method`` on the core. Raises UtilityError with the core's message, Unavailable at once if it dies."""
        with self._utility_calls.one() as (call_id, answer):
            self._send(RequestType.UTILITY, UtilityCall(0, call_id, method, list(args)))
            return await answer

    def lose_core_after_last_words(self, reason: str) -> None:
        """The core is gone, but what it said last may still be on its way: read that first."""
        self._farewell = reason
        self._loop.call_later(_LAST_WORDS_TIMEOUT_S, self.lose_core, reason)
        self._read_to_end(self._speaker_events)
        self._bid_farewell()

    def lose_core(self, reason: str) -> None:
        """The core is gone: end everything that waits for it. Only the first call counts."""
        if self.lost.done():
            return
        self.lost.set_result(reason)
        self.stats.forget_load()
        for stream in set(self._streams.values()):
            stream.fail(self._core_lost())
        self._utility_calls.fail(self._core_lost())

    def close(self) -> None:
        """Stop reading and release the sockets."""
        for socket in self._readers:
            self._loop.remove_reader(socket.FD)
        self._requests.disable_monitor()
        self._outputs.disable_monitor()
        for socket in self._readers:
            socket.close(linger=0)
        self._context.term()

    def _bind(self, socket_type: int, address: str) -> "zmq.Socket[bytes]":
        socket = self._context.socket(socket_type)
        socket.set_hwm(0)
        if socket_type == zmq.ROUTER:
            # A restarted core takes its identity over; a send to a core that is not there raises.
            socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
            socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.ipv6 = "[" in address
        if address.startswith("tcp:"):
            # A host that vanishes closes no connection.
            socket.heartbeat_timeout = self._heartbeat_timeout_ms
            socket.heartbeat_ivl = self._heartbeat_timeout_ms // 4
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise EngineAddressError(f"cannot listen at {address}: {error}") from error
        return socket

    def _send(self, request_type: RequestType, message: object) -> None:
        if self.lost.done() or not self.ready.done():
            raise self._core_lost()
        frames = [self._identity, request_type.value, *self._encoder.encode(message)]
        try:
            self._requests.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            raise self._core_lost() from error
        if self._requests.poll(0):
            self._loop.call_soon(self._read, self._requests)

    def _send_abort(self, request_ids: Sequence[str]) -> None:
        """A core that is gone has nothing to abort."""
        if request_ids:
            with contextlib.suppress(Unavailable):
                self._send(RequestType.ABORT, list(request_ids))

    def _core_lost(self) -> Unavailable:
        reason = self.lost.result() if self.lost.done() else "no core is connected"
        return Unavailable(f"the engine core is gone: {reason}", reason="CORE_LOST")

    def _read(self, socket: "zmq.Socket[bytes]") -> None:
        """Take a few messages; the rest, if there is one, after others have run."""
        if not socket.closed and all(self._read_one(socket) for _ in range(_MESSAGES_PER_TURN)):
            self._loop.call_soon(self._read, socket)

    def _read_to_end(self, socket: "zmq.Socket[bytes]") -> None:
        while self._read_one(socket):
            pass

    def _read_one(self, socket: "zmq.Socket[bytes]") -> bool:
        """Whether there was a message."""
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        try:
            self._readers[socket](frames)
        except Exception:
            logger.exception("a message of %d frames was dropped", len(frames))
        return True

    def _on_ready_response(self, frames: list[bytes]) -> None:
        identity, *payload = frames
        if identity != self._identity:
            logger.warning("a message from a stranger was dropped, identity %s", identity.hex())
            return
        if self.ready.done():
            return
        try:
            response = _checked(self._ready_decoder.decode(payload))
            self._wire_version = version_of_core(response)
            self._output_decoder = OutputDecoder(self._wire_version)
            self.ready.set_result(response)
        except WireError as error:
            self.lose_core(f"its ready response is none: {error}")

    def _on_output(self, frames: list[bytes]) -> None:
        if frames[0] == ENGINE_CORE_DEAD:
            self.lose_core("it reported a fatal error")
            return
        try:
            outputs = self._output_decoder.decode(frames)
        except WireError as error:
            logger.error("undecodable output message: %s", error)
            outputs = self._salvage(frames)
        self._dispatch(outputs)

    def _salvage(self, frames: list[bytes]) -> EngineCoreOutputs:
        outputs, broken_ids = self._output_decoder.salvage(frames)
        self._send_abort(broken_ids)
        cause = "the core sent an undecodable output"
        outputs.outputs += [
            EngineCoreOutput(request_id, [], finish_reason=FinishReason.ERROR, stop_reason=cause)
            for request_id in broken_ids
        ]
        return outputs

    def _dispatch(self, outputs: EngineCoreOutputs) -> None:
        self.stats.record(outputs)
        self.requests.record(outputs)
        for output in outputs.outputs:
            if (stream := self._streams.get(output.request_id)) is not None:
                self.num_coalesced_outputs += stream.put(output)
        if outputs.utility_output is not None:
            self._utility_calls.resolve(outputs.utility_output)

    def _on_hangup(self, _event: list[bytes]) -> None:
        for delay_s in _PROBES_AFTER_S:
            self._loop.call_later(delay_s, self._probe)

    def _probe(self) -> None:
        """An ABORT of nothing costs the core nothing, and cannot be sent to one that has hung up."""
        if not self.ready.done() or self.lost.done() or self._requests.closed:
            return
        try:
            self._send(RequestType.ABORT, [])
        except Unavailable:
            self.lose_core_after_last_words("it closed the connection")

    def _on_speaker_event(self, frames: list[bytes]) -> None:
        event = parse_monitor_message(frames)
        if event["event"] == zmq.EVENT_ACCEPTED:
            self._speakers.add(event["value"])
        else:
            self._speakers.discard(event["value"])
            self._bid_farewell()

    def _bid_farewell(self) -> None:
        """Lose a core that is gone, if nobody is left who could still say something."""
        if self._farewell is not None and not self._speakers:
            self._read_to_end(self._outputs)
            self.lose_core(self._farewell)


def _checked(response: EngineReadyResponse) -> EngineReadyResponse:
    """Raises WireError for a size that no engine can have: everything here counts with them."""
    for field in ("max_model_len", "num_gpu_blocks", "block_size", "data_parallel_size"):
        if not 1 <= (size := getattr(response, field)) <= _MAX_SIZE:
            raise WireError(f"EngineReadyResponse.{field}: must be in [1, {_MAX_SIZE}], got {size}")
    return response


def _endpoint(socket: "zmq.Socket[bytes]") -> str:
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)
