"""The sockets between the gateway and its cores: the only place in ``service`` that touches zmq but for ``WaveClient``.

    send ─────────────── ROUTER ──▶ core r     a send completes at once: the queue is zmq's, nobody awaits
    on_message ◀──────── ROUTER ─── core r     a core's first message teaches the ROUTER its identity
    on_output ◀───────── PULL ◀──── core r     the outputs of all cores come through the one socket
    on_hangup ◀── PAIR ── zmq monitor          the connection that messages came on, by its number, is closed
    on_speaker_gone ◀── PAIR ── zmq monitor    a peer of the PULL hung up: it has said its last words

Everything runs on the event loop. The sockets are read by callbacks on their file descriptors, not by ``zmq.asyncio``:
that one makes a future and a task switch for every message, where a callback takes all that have come in one turn.
The descriptor announces only that *something* changed (its signal may also be used up by a send), so every read goes
on until the socket is empty.

Who is heard under an identity: the connection that has it, until it closes. Another one that brings the same identity
is not heard and gets nothing, so a stranger that connects with the identity of a live core takes nothing from it. Only
while ``let_take_over`` is on does a newcomer replace the connection that is there, which zmq then drops silently.
The limit: nothing on these sockets proves which core a peer is, so whoever can reach the handshake, or comes first
after a core has gone, can be that core; and whoever can reach the PULL can speak for any. ipc sockets lie in a folder
of our own; with tcp, CURVE lets only known cores in, or the network is one's own.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from core.wire.codec import Frame
from core.wire.curve import CurveServer, Doorkeeper
from core.wire.messages import EngineAddresses, RequestType

logger = logging.getLogger(__name__)

_MESSAGES_PER_TURN = 16
"""The reader lets others run after this many messages."""


class EngineAddressError(Exception):
    """The core's sockets cannot be bound where they should be; the text names the address."""


class NotConnectedError(Exception):
    """There is no connection under that identity."""


@dataclass(frozen=True)
class Hearers:
    """What is called with what comes in. A message that a callee raises at is logged and dropped."""

    on_message: Callable[[bytes, int, list[bytes]], None]
    """Identity, number of the connection, frames."""
    on_output: Callable[[list[bytes]], None]
    on_hangup: Callable[[int], None]
    """The connection of this number is closed."""
    on_speaker_gone: Callable[[], None]


class EngineSockets:
    """Bound from the start. Owned by the event loop."""

    def __init__(
        self,
        input_address: str,
        output_address: str,
        hearers: Hearers,
        heartbeat_timeout_s: float,
        curve: CurveServer | None = None,
    ) -> None:
        """Raises EngineAddressError if an address, ``ipc://`` or ``tcp://`` (port 0 = any), cannot be bound.

        A tcp connection is closed when its host has been silent for ``heartbeat_timeout_s``. With ``curve`` every peer
        is asked for its key, at the sockets of ``context`` too that it protects.
        """
        self._loop = asyncio.get_running_loop()
        self._hearers = hearers
        self._heartbeat_timeout_ms = round(heartbeat_timeout_s * 1000)
        self._speakers: set[int] = set()
        self._context = zmq.Context()
        self._curve = curve
        self._doorkeeper = None if curve is None else Doorkeeper(self._context, curve)
        self._requests = self._bind(zmq.ROUTER, input_address)
        self._outputs = self._bind(zmq.PULL, output_address)
        self._hangups = self._requests.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._speaker_events = self._outputs.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._takers: dict[zmq.Socket[bytes], Callable[[list[Any]], None]] = {
            self._requests: self._take_message,
            self._outputs: self._take_output,
            self._hangups: self._take_hangup,
            self._speaker_events: self._take_speaker_event,
        }
        for socket in self._takers:
            self._loop.add_reader(socket.FD, self._read, socket)
            self._loop.call_soon(self._read, socket)  # a descriptor stays silent until its socket was once found empty

    @property
    def context(self) -> zmq.asyncio.Context:
        """For sockets that live no longer than these."""
        return zmq.asyncio.Context(self._context)

    @property
    def addresses(self) -> EngineAddresses:
        """Where cores are to connect."""
        return EngineAddresses(inputs=[_endpoint(self._requests)], outputs=[_endpoint(self._outputs)])

    @property
    def num_speakers(self) -> int:
        """Peers of the PULL: who could still say something."""
        self._read_to_end(self._speaker_events)
        return len(self._speakers)

    def send(self, identity: bytes, request_type: RequestType, payload: Sequence[Frame]) -> None:
        """Queue a message to the core of ``identity``. Raises NotConnectedError."""
        frames = [identity, request_type.value, *payload]
        try:
            self._requests.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            raise NotConnectedError(str(error)) from error
        if int(self._requests.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._loop.call_soon(self._read, self._requests)

    def let_take_over(self, allowed: bool) -> None:
        """Whether a newcomer may have an identity that a live connection has."""
        self._requests.router_handover = allowed

    def read_outputs_to_end(self) -> None:
        """Take every output that has come in."""
        self._read_to_end(self._outputs)

    def close(self) -> None:
        """Stop reading and release the sockets. May be called twice."""
        if self._requests.closed:
            return
        for socket in self._takers:
            self._loop.remove_reader(socket.FD)
        self._requests.disable_monitor()
        self._outputs.disable_monitor()
        for socket in self._takers:
            socket.close(linger=0)
        self._dismiss_doorkeeper()
        self._context.term()

    def _dismiss_doorkeeper(self) -> None:
        if self._doorkeeper is not None:
            self._doorkeeper.stop()

    def _bind(self, socket_type: int, address: str) -> "zmq.Socket[bytes]":
        socket = self._context.socket(socket_type)
        socket.set_hwm(0)
        if socket_type == zmq.ROUTER:
            socket.router_mandatory = True  # a send to a core that is not there raises
        socket.ipv6 = "[" in address
        if address.startswith("tcp:"):
            # A host that vanishes closes no connection.
            socket.heartbeat_timeout = self._heartbeat_timeout_ms
            socket.heartbeat_ivl = self._heartbeat_timeout_ms // 4
        if self._curve is not None:
            self._curve.protect(socket)
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            self._dismiss_doorkeeper()
            self._context.destroy(linger=0)
            raise EngineAddressError(f"cannot listen at {address}: {error}") from error
        return socket

    def _read(self, socket: "zmq.Socket[bytes]") -> None:
        """Take a few messages; the rest, if there is one, after others have run."""
        if all(self._read_one(socket) for _ in range(_MESSAGES_PER_TURN)):
            self._loop.call_soon(self._read, socket)

    def _read_to_end(self, socket: "zmq.Socket[bytes]") -> None:
        while self._read_one(socket):
            pass

    def _read_one(self, socket: "zmq.Socket[bytes]") -> bool:
        """Whether there was a message. A socket that is closed has none."""
        if socket.closed:
            return False
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK, copy=socket is not self._requests)
        except zmq.Again:
            return False
        try:
            self._takers[socket](frames)
        except Exception:
            logger.exception("a message was dropped")
        return True

    def _take_message(self, message: list[zmq.Frame]) -> None:
        identity, *frames = message
        connection = int(identity.get(zmq.SRCFD))
        self._read_to_end(self._hangups)  # the number may have been another connection's, now closed
        self._hearers.on_message(identity.bytes, connection, [frame.bytes for frame in frames])

    def _take_output(self, frames: list[bytes]) -> None:
        self._hearers.on_output(frames)

    def _take_hangup(self, frames: list[bytes]) -> None:
        self._hearers.on_hangup(parse_monitor_message(frames)["value"])

    def _take_speaker_event(self, frames: list[bytes]) -> None:
        event = parse_monitor_message(frames)
        if event["event"] == zmq.EVENT_ACCEPTED:
            self._speakers.add(event["value"])
        else:
            self._speakers.discard(event["value"])
            self._hearers.on_speaker_gone()


def _endpoint(socket: "zmq.Socket[bytes]") -> str:
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)
