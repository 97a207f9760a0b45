"""The sockets to the publisher of one core's KV events: the only place here that touches zmq.

    live          ◀── SUB ──────── PUB      [topic] [number] [batch]
    repeated      ◀── DEALER ──── ROUTER    [] [number] [batch] …  [] [-1] []    ──▶ [] [first number wanted]
    connected     ◀── PAIR ── zmq monitor   the SUB has shaken hands with a publisher
    disconnected  ◀── PAIR ── zmq monitor

Read by callbacks on the file descriptors, as in ``service.cores.engine_sockets``. What is not read for a while waits in
zmq, in bounded queues; a publisher that finds them full drops batches, whose numbers are then missing.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import zmq
from zmq.utils.monitor import parse_monitor_message

from core.wire.kv_events import END_OF_REPLAY, NUMBER_BYTES

logger = logging.getLogger(__name__)

_MESSAGES_PER_TURN = 16
"""The reader lets others run after this many messages."""
_HEARTBEAT_INTERVAL_MS = 2500
_HEARTBEAT_TIMEOUT_MS = 10_000
"""A host that vanishes closes no connection."""


class EventAddressError(Exception):
    """An endpoint cannot be used; the text names it."""


class Hearer(Protocol):
    """Who is told what the publisher says."""

    def connected(self) -> None: ...

    def disconnected(self) -> None: ...

    def live(self, number: int, payload: bytes, /) -> None: ...

    def repeated(self, number: int, payload: bytes, /) -> None: ...

    def all_repeated(self) -> None: ...


class EventSockets:
    """Open from ``start`` to ``close``. Owned by the event loop."""

    def __init__(self, endpoint: str, replay_endpoint: str | None, topic: str) -> None:
        """The SUB listens at ``endpoint`` if its host is ``*``, and else connects to it."""
        self._loop = asyncio.get_running_loop()
        self._endpoint = endpoint
        self._replay_endpoint = replay_endpoint
        self._topic = topic.encode()
        self._context = zmq.Context()
        self._sub = self._open(zmq.SUB, endpoint)
        self._connections = self._sub.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        self._replay: zmq.Socket[bytes] | None = None
        self._is_listening = True

    def __str__(self) -> str:
        return self._endpoint

    @property
    def can_repeat(self) -> bool:
        return self._replay_endpoint is not None

    def start(self, hearer: Hearer) -> None:
        """Raises EventAddressError. Whether somebody is there shows later."""
        self._hearer = hearer
        self._sub.subscribe(self._topic)
        self._join(self._sub, self._endpoint)
        self._read_when_ready(self._connections, self._take_connection)
        self._read_when_ready(self._sub, self._take_live)

    def listen(self, is_listening: bool) -> None:
        self._is_listening = is_listening
        if is_listening:
            self._read_when_ready(self._sub, self._take_live)
        else:
            self._loop.remove_reader(self._sub.FD)  # it would be ready all the time

    def ask_from(self, number: int) -> None:
        if self._replay is None:
            assert self._replay_endpoint is not None, "it can repeat"
            self._replay = self._open(zmq.DEALER, self._replay_endpoint)
            self._join(self._replay, self._replay_endpoint)
            self._read_when_ready(self._replay, self._take_repeated)
        with suppress(zmq.Again):  # it will not answer either, which is noticed
            self._replay.send_multipart([b"", number.to_bytes(NUMBER_BYTES, "big")], zmq.NOBLOCK)

    def forget_question(self) -> None:
        if self._replay is not None:
            self._loop.remove_reader(self._replay.FD)
            self._replay.close(linger=0)
            self._replay = None

    def close(self) -> None:
        """May be called twice, and without ``start``."""
        if self._sub.closed:
            return
        self.forget_question()
        for socket in (self._connections, self._sub):
            self._loop.remove_reader(socket.FD)
        self._sub.disable_monitor()
        self._connections.close(linger=0)
        self._sub.close(linger=0)
        self._context.term()

    def _open(self, kind: int, endpoint: str) -> "zmq.Socket[bytes]":
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.ipv6 = "[" in endpoint
        if endpoint.startswith("tcp:"):
            socket.heartbeat_ivl, socket.heartbeat_timeout = _HEARTBEAT_INTERVAL_MS, _HEARTBEAT_TIMEOUT_MS
        return socket

    def _join(self, socket: "zmq.Socket[bytes]", endpoint: str) -> None:
        try:
            socket.bind(endpoint) if "://*" in endpoint else socket.connect(endpoint)
        except zmq.ZMQError as error:
            verb = "listen at" if "://*" in endpoint else "connect to"
            raise EventAddressError(f"KV events: cannot {verb} {endpoint}: {error}") from error

    def _read_when_ready(self, socket: "zmq.Socket[bytes]", take: Callable[[list[bytes]], None]) -> None:
        self._loop.add_reader(socket.FD, self._read, socket, take)
        self._loop.call_soon(
            self._read, socket, take
        )  # a descriptor stays silent until its socket was once found empty

    def _read(self, socket: "zmq.Socket[bytes]", take: Callable[[list[bytes]], None]) -> None:
        """Take a few messages; the rest, if there is one, after others have run."""
        if all(self._read_one(socket, take) for _ in range(_MESSAGES_PER_TURN)):
            self._loop.call_soon(self._read, socket, take)

    def _read_one(self, socket: "zmq.Socket[bytes]", take: Callable[[list[Any]], None]) -> bool:
        """Whether there was a message. What became of the connection counts before what came through it."""
        if socket is not self._connections:
            while self._read_one(self._connections, self._take_connection):
                pass
        if socket.closed or (socket is self._sub and not self._is_listening):
            return False
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        try:
            take(frames)
        except Exception:
            logger.exception("a message of a publisher of KV events was dropped")
        return True

    def _take_connection(self, frames: list[bytes]) -> None:
        if parse_monitor_message(frames)["event"] == zmq.EVENT_DISCONNECTED:
            self._drop_unread()
            self._hearer.disconnected()
        else:
            self._hearer.connected()

    def _drop_unread(self) -> None:
        """It is of no use without what would follow, and the next publisher's batches look the same."""
        with suppress(zmq.Again):
            while True:
                self._sub.recv_multipart(zmq.NOBLOCK)

    def _take_live(self, frames: list[bytes]) -> None:
        if len(frames) != 3 or len(frames[1]) != NUMBER_BYTES:
            raise ValueError(f"{len(frames)} frames, where topic, number and batch should be")
        self._hearer.live(int.from_bytes(frames[1], "big"), frames[2])

    def _take_repeated(self, frames: list[bytes]) -> None:
        if len(frames) != 3 or len(frames[1]) != NUMBER_BYTES:
            raise ValueError(f"{len(frames)} frames, where an empty one, number and batch should be")
        if frames[1] == END_OF_REPLAY:
            self._hearer.all_repeated()
        else:
            self._hearer.repeated(int.from_bytes(frames[1], "big"), frames[2])
