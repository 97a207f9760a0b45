"""The input thread: reads every input socket and hands each message to the intake."""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import zmq

from core.intake import Intake
from core.wire.codec import Encoder
from core.wire.messages import EngineReadyResponse

logger = logging.getLogger(__name__)

LAST_READ_S = 1.0
"""A front end that never ceases to send does not hold up the end for longer."""
JOIN_TIMEOUT_S = 5.0


class InputThread:
    """Reads every input socket and hands each message to the intake."""

    def __init__(self, sockets: list[zmq.Socket[bytes]], intake: Intake, on_death: Callable[[str], None]) -> None:
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
