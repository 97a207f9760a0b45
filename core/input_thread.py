"""The input thread: reads every input socket, and follows the connection behind it.

DEALER ──▶ intake                               one of each per front end
PAIR   ──▶ front_ends, on_front_end_lost        zmq's monitor of the DEALER
XSUB   ──▶ intake                               one, if there is a data-parallel coordinator
"""

import logging
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import setproctitle
import zmq
from zmq.utils.monitor import parse_monitor_message

from core.front_ends import FrontEnds
from core.intake import Intake
from core.wire.codec import Encoder
from core.wire.handshake import HandshakeError
from core.wire.messages import EngineReadyResponse
from core.wire.waves import COORDINATOR_READY, SUBSCRIBE

logger = logging.getLogger(__name__)

LAST_READ_S = 1.0
"""A front end that never ceases to send does not hold up the end for longer."""
JOIN_TIMEOUT_S = 5.0
COORDINATOR_TIMEOUT_S = 600.0
"""It says READY when every engine has come: when the last one has loaded its model."""


class InputThread:
    """Reads every input socket and hands each message to the intake."""

    def __init__(
        self,
        sockets: list[zmq.Socket[bytes]],
        front_ends: FrontEnds,
        intake: Intake,
        on_front_end_lost: Callable[[int], None],
        on_death: Callable[[str], None],
        coordinator: zmq.Socket[bytes] | None = None,
    ) -> None:
        self._sockets = sockets
        self._coordinator = coordinator
        self._monitors = [monitor_of(socket) for socket in sockets]
        self._front_ends = front_ends
        self._intake = intake
        self._on_front_end_lost = on_front_end_lost
        self._on_death = on_death
        self._stop_read, stop_write = os.pipe()
        self._stop_write = os.fdopen(stop_write, "wb")
        self._thread = threading.Thread(target=self._run, name="input", daemon=True)

    def start(self, ready_response: EngineReadyResponse) -> None:
        for socket in self._sockets:
            socket.send_multipart(Encoder().encode(ready_response))
        if self._coordinator is not None:
            self._subscribe(self._coordinator)
        self._thread.start()

    def stop(self) -> None:
        """Return when the thread has ended. May be called twice."""
        self._stop_write.close()
        if self._thread.ident is not None:
            self._thread.join(JOIN_TIMEOUT_S)

    def _subscribe(self, coordinator: zmq.Socket[bytes]) -> None:
        coordinator.send(SUBSCRIBE)
        frames: list[bytes] = []
        while frames != [COORDINATOR_READY]:
            if not coordinator.poll(round(COORDINATOR_TIMEOUT_S * 1000)):
                raise HandshakeError(f"no READY from the coordinator within {COORDINATOR_TIMEOUT_S:g} s")
            # Before READY it may speak to engines that came earlier, and this one hears it.
            self._intake.take_from_coordinator(frames := coordinator.recv_multipart())

    def _run(self) -> None:
        setproctitle.setthreadtitle("core-input")
        try:
            self._read_until_stopped()
        except BaseException as error:  # When native code panics, that is no Exception.
            logger.exception("the input thread died")
            self._on_death(f"the input thread died: {error!r}")
        finally:
            os.close(self._stop_read)
            for socket in self._sockets:
                socket.disable_monitor()
            for socket in (*self._monitors, *self._all_sockets()):
                socket.close()

    def _read_until_stopped(self) -> None:
        poller = _poller(*self._all_sockets(), *self._monitors, self._stop_read)
        while self._stop_read not in (readable := self._wait(poller)):
            self._take_one_each(readable)
            self._follow_connections(readable)
        self._read_what_has_arrived()

    def _wait(self, poller: zmq.Poller) -> dict[Any, int]:
        seconds = self._front_ends.seconds_to_next_loss(time.monotonic())
        return dict(poller.poll(None if seconds is None else math.ceil(seconds * 1000)))

    def _take_one_each(self, readable: dict[Any, int]) -> None:
        for client_index, socket in enumerate(self._sockets):
            if socket in readable:
                self._intake.take(client_index, socket.recv_multipart())
        if self._coordinator is not None and self._coordinator in readable:
            self._intake.take_from_coordinator(self._coordinator.recv_multipart())

    def _follow_connections(self, readable: dict[Any, int]) -> None:
        for client_index, monitor in enumerate(self._monitors):
            if monitor in readable:
                self._follow(client_index, parse_monitor_message(monitor.recv_multipart())["event"])
        for client_index in self._front_ends.take_lost(time.monotonic()):
            self._on_front_end_lost(client_index)

    def _follow(self, client_index: int, event: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._front_ends.connect(client_index)
        else:
            self._front_ends.disconnect(client_index, time.monotonic())

    def _read_what_has_arrived(self) -> None:
        poller, deadline = _poller(*self._sockets), time.monotonic() + LAST_READ_S
        while time.monotonic() < deadline and (readable := dict(poller.poll(0))):
            self._take_one_each(readable)

    def _all_sockets(self) -> list[zmq.Socket[bytes]]:
        return self._sockets if self._coordinator is None else [*self._sockets, self._coordinator]


def monitor_of(socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    """What tells how its connection fares; the same at each call. To be asked for before it connects."""
    return socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)


def _poller(*sources: Any) -> zmq.Poller:
    poller = zmq.Poller()
    for source in sources:
        poller.register(source, zmq.POLLIN)
    return poller
