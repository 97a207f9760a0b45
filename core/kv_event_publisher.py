"""Publishes KV events, as vLLM's publisher does: PUB for who listens now, ROUTER for who has missed some.

    busy loop ──publish──▶ backlog ─ pipe wakes ─▶ publisher thread ──PUB──▶ [topic] [number] [batch]
                                                     │    ▲
                                          last batches    └─ROUTER─ ◀── [] [first number wanted]
                                                                    ──▶ [] [number] [batch] …  [] [-1] []

Numbers are 8 bytes, big-endian, and rise by one with every batch: a subscriber that misses one asks for it, and if it
is not kept any more, starts anew. The thread owns both sockets and what is kept; only the backlog and the pipe are
shared. The busy loop never waits: when the backlog is full, a batch is dropped, and its number with it.
"""

import contextlib
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import zmq

from core.config import KVEventsConfig
from core.logs import ThrottledLog
from core.wire.kv_endpoint import is_listened_at
from core.wire.kv_events import END_OF_REPLAY, NUMBER_BYTES, KVEvent, KVEventBatch

logger = logging.getLogger(__name__)

KEPT_BATCHES = 10_000
"""For replay; as many may wait to be sent."""
SEND_HWM = 100_000
LINGER_MS = 1000
JOIN_TIMEOUT_S = 5.0


class KVEventPublisher:
    """Running from the moment it is made, until ``close``.

    Raises ValueError if an endpoint cannot be taken. ``on_death`` is called when the thread has died.
    """

    def __init__(self, config: KVEventsConfig, on_death: Callable[[], None]) -> None:
        self._rank = config.rank
        self._topic = config.topic.encode()
        self._on_death = on_death
        self._backlog: queue.SimpleQueue[tuple[int, KVEventBatch]] = queue.SimpleQueue()
        self.num_published = 0
        """Batches, dropped ones too: the next one's number."""
        self._dropped = ThrottledLog(logger)
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=KEPT_BATCHES)
        self._encoder = msgspec.msgpack.Encoder()
        self._context = zmq.Context()
        try:
            self._pub = self._open(zmq.PUB, config.endpoint, SEND_HWM)
            # Room for one whole replay and its end: what is too much for a peer is dropped.
            replay = config.replay_endpoint
            self._replay = self._open(zmq.ROUTER, replay, KEPT_BATCHES + 1) if replay else None
        except ValueError:
            self._context.destroy(linger=0)
            raise
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._thread = threading.Thread(target=self._run, name="kv-events", daemon=True)
        self._thread.start()

    def publish(self, events: list[KVEvent]) -> None:
        """Send ``events`` as one batch, soon. For the busy loop."""
        number = self.num_published
        self.num_published += 1
        if self._backlog.qsize() >= KEPT_BATCHES:
            self._dropped.warning("dropped the batch of KV events number %d: %d wait to be sent", number, KEPT_BATCHES)
            return
        self._backlog.put((number, KVEventBatch(time.time(), events, self._rank)))
        with contextlib.suppress(BlockingIOError):  # it has been woken often enough
            os.write(self._wake_write, b"\0")

    def close(self) -> None:
        """Send what waits to be sent, and end. May be called twice."""
        if self._wake_write < 0:
            return
        os.close(self._wake_write)
        self._wake_write = -1
        self._thread.join(JOIN_TIMEOUT_S)
        if not self._thread.is_alive():
            self._context.destroy(LINGER_MS)

    def _open(self, kind: int, endpoint: str, hwm: int) -> "zmq.Socket[bytes]":
        """Bound where everybody can come to it, else connected: vLLM's rule, by which routers are configured."""
        socket = self._context.socket(kind)
        socket.set_hwm(hwm)
        socket.linger = LINGER_MS
        socket.ipv6 = "[" in endpoint
        is_own = kind == zmq.ROUTER or is_listened_at(endpoint)
        try:
            socket.bind(endpoint) if is_own else socket.connect(endpoint)
        except zmq.ZMQError as error:
            verb = "listen at" if is_own else "connect to"
            raise ValueError(f"KV events: cannot {verb} {endpoint}: {error}") from error
        return socket

    def _run(self) -> None:
        try:
            self._serve_until_closed()
        except Exception:
            logger.exception("the publisher of KV events died")
            self._on_death()
        finally:
            os.close(self._wake_read)
            self._pub.close()
            if self._replay is not None:
                self._replay.close()

    def _serve_until_closed(self) -> None:
        poller = zmq.Poller()
        for source in (self._wake_read, self._replay):
            if source is not None:
                poller.register(source, zmq.POLLIN)
        is_open = True
        while is_open:
            readable: dict[Any, int] = dict(poller.poll())
            if self._wake_read in readable:
                is_open = bool(os.read(self._wake_read, 4096))
            self._send_backlog()
            if self._replay is not None and self._replay in readable:
                self._answer(self._replay, self._replay.recv_multipart())

    def _send_backlog(self) -> None:
        for _ in range(self._backlog.qsize()):
            number, batch = self._backlog.get()
            numbered = number.to_bytes(NUMBER_BYTES, "big"), self._encoder.encode(batch)
            self._kept.append(numbered)
            self._pub.send_multipart([self._topic, *numbered])

    def _answer(self, replay: "zmq.Socket[bytes]", frames: list[bytes]) -> None:
        """Every batch from the wanted one on that is still kept, then the end marker, which is all that others get."""
        peer, *request = frames
        if len(request) == 2 and len(request[1]) == NUMBER_BYTES:
            for number, batch in self._kept:
                if number >= request[1]:  # big-endian: the order of bytes is that of numbers
                    replay.send_multipart([peer, b"", number, batch])
        else:
            self._dropped.warning("a replay request must be an empty frame and 8 bytes, got %d frames", len(request))
        replay.send_multipart([peer, b"", END_OF_REPLAY, b""])
