"""Streams whose clients do not read: what they hold is given up after a while, all the same if they ever read on.

A message that a client does not take is not taken back: gRPC sends a status only after it. So the call stays, with that
one message, until the client reads, cancels or is gone; all else that it held is released when it is cut.

One timer looks at every stream, a few times in each time-out: a stream pays for a write with two assignments.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any

from service.errors import Aborted

logger = logging.getLogger(__name__)

_TICKS_PER_TIMEOUT = 8


class Writing:
    """One stream, watched in its ``with`` block. ``since``: the tick at which the write that runs began; None between
    writes.
    """

    __slots__ = ("_closing", "_peer", "_responses", "_watched", "since")

    def __init__(self, watched: "set[Writing]", responses: AsyncGenerator[Any, Any], peer: Callable[[], str]) -> None:
        """It puts itself among ``watched``. ``peer`` tells who is to read."""
        self.since: int | None = None
        self._watched = watched
        self._responses = responses
        self._peer = peer
        self._closing: asyncio.Task[None] | None = None

    def __enter__(self) -> "Writing":
        self._watched.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._watched.discard(self)

    @property
    def is_cut(self) -> bool:
        return self._closing is not None

    def cut(self) -> None:
        """Nothing more is wanted of the method: its generator waits for the write to end, and can be closed."""
        logger.warning("a stream is cut: its client, %s, does not read", self._peer())
        self._closing = asyncio.create_task(self._close())

    async def end_if_cut(self) -> None:
        """Raises Aborted if the stream was cut while it wrote."""
        if self._closing is not None:
            await self._closing
            raise Aborted("the client did not read for too long", reason="WRITE_STALLED")

    async def aclose(self) -> None:
        """The call has ended. Nothing of the method runs any more, even if its stream was just being cut."""
        self.since = None
        await (self._responses.aclose() if self._closing is None else self._closing)

    async def _close(self) -> None:
        try:
            await self._responses.aclose()
        except Exception:
            logger.exception("a stream that was cut did not end well")


class StallWatch:
    """Cuts the streams that write one message for longer than ``timeout_s``, or up to an eighth more."""

    def __init__(self, timeout_s: float) -> None:
        self.tick = 0
        self.num_cut = 0
        self._interval_s = timeout_s / _TICKS_PER_TIMEOUT
        self._open: set[Writing] = set()
        self._is_ticking = False

    def __repr__(self) -> str:
        return f"StallWatch({len(self._open)} streams, {self.num_cut} cut)"

    def follow(self, responses: AsyncGenerator[Any, Any], peer: Callable[[], str]) -> Writing:
        """To watch a stream for a ``with`` block. It sets ``since`` to ``tick`` before a write, to None after it."""
        self._keep_ticking()
        return Writing(self._open, responses, peer)

    def _keep_ticking(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_later(self._interval_s, self._on_tick)

    def _on_tick(self) -> None:
        self._is_ticking = False
        self.tick += 1
        for writing in self._open:
            if writing.since is not None and self.tick - writing.since > _TICKS_PER_TIMEOUT and not writing.is_cut:
                self.num_cut += 1
                writing.cut()
        if self._open:
            self._keep_ticking()
