"""Streams whose clients do not read: what they hold is given up after a while, all the same if they ever read on.

A message that a client does not take is not taken back: gRPC sends a status only after it. So the call stays, with that
one message, until the client reads, cancels or is gone; all else that it held is released when it is cut.

One timer looks at every stream, a few times in each time-out: a stream pays for a write with two assignments.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

from service.errors import Aborted

logger = logging.getLogger(__name__)

_TICKS_PER_TIMEOUT = 8


class Writing:
    """One stream. ``since``: the tick at which the write that runs began; None between writes."""

    __slots__ = ("_closing", "_peer", "_responses", "since")

    def __init__(self, responses: AsyncGenerator[Any, Any], peer: str) -> None:
        self.since: int | None = None
        self._responses = responses
        self._peer = peer
        self._closing: asyncio.Task[None] | None = None

    @property
    def is_cut(self) -> bool:
        return self._closing is not None

    def cut(self) -> None:
        """Nothing more is wanted of the method: its generator waits for the write to end, and can be closed."""
        logger.warning("a stream is cut: its client, %s, does not read", self._peer)
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

    @contextmanager
    def follow(self, responses: AsyncGenerator[Any, Any], peer: str) -> Iterator[Writing]:
        """Watch a stream for the block. It sets ``since`` to ``tick`` before a write, and to None after it."""
        writing = Writing(responses, peer)
        self._open.add(writing)
        self._keep_ticking()
        try:
            yield writing
        finally:
            self._open.discard(writing)

    def _keep_ticking(self) -> None:
        if not self._is_ticking and self._open:
            self._is_ticking = True
            asyncio.get_running_loop().call_later(self._interval_s, self._on_tick)

    def _on_tick(self) -> None:
        self._is_ticking = False
        self.tick += 1
        for writing in self._open:
            if writing.since is not None and self.tick - writing.since > _TICKS_PER_TIMEOUT and not writing.is_cut:
                self.num_cut += 1
                writing.cut()
        self._keep_ticking()
