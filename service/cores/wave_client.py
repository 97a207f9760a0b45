"""The gateway's connection to the coordinator of its cores.

    coordinator XPUB ── CoordinatorState ──▶ XSUB     which wave it is, and whether the cores step
                     ◀── FirstRequest ──────          a core that rests was sent a request: all must step

Everything runs on the event loop.
"""

import asyncio
import logging

import msgspec
import zmq
import zmq.asyncio

from core.wire.codec import Decoder, WireError
from core.wire.curve import CurveClient
from core.wire.waves import SUBSCRIBE, CoordinatorState, FirstRequest

logger = logging.getLogger(__name__)


class WaveClient:
    """``wave`` is what a request has to say. It may be late: the cores know better, and wake each other."""

    def __init__(self, address: str, curve: CurveClient | None = None) -> None:
        """Connect to ``address``; the current state comes at once. ``curve`` None: in the clear."""
        self.wave = 0
        self.is_running = False
        self._decoder = Decoder(CoordinatorState)
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.XSUB)
        self._socket.set_hwm(0)
        self._socket.linger = 0
        self._socket.ipv6 = "[" in address
        if curve is not None:
            curve.protect(self._socket)
        self._socket.connect(address)
        self._send(SUBSCRIBE)
        self._following = asyncio.ensure_future(self._follow())

    def __repr__(self) -> str:
        return f"WaveClient({self.wave}, {'running' if self.is_running else 'at rest'})"

    def note_request(self, engine_identity: bytes) -> None:
        """A request of ``wave`` was sent: tell the coordinator, if nobody has."""
        if not self.is_running:
            self.is_running = True
            self._send(msgspec.msgpack.encode(FirstRequest(engine_identity, self.wave)))

    def close(self) -> None:
        self._following.cancel()
        self._socket.close()
        self._context.term()

    def _send(self, message: bytes) -> None:
        # Is done when it returns. Through the asyncio socket all the same: it looks after the descriptor's signals.
        self._socket.send(message, zmq.NOBLOCK)

    async def _follow(self) -> None:
        while True:
            self._take(await self._socket.recv_multipart())

    def _take(self, frames: list[bytes]) -> None:
        try:
            state = self._decoder.decode(frames)
        except WireError as error:
            logger.warning("the coordinator's message was dropped: %s", error)
            return
        self.wave, self.is_running = state.wave, state.running
