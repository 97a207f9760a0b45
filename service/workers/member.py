"""One worker's place: a process fills it, another when that one is gone. Its sockets for the cores stay the same."""

import asyncio
import logging
from collections.abc import Sequence
from typing import TypeVar

from core.wire.messages import EngineAddresses
from service.workers import methods
from service.workers.channel import CallError, Channel, ChannelClosedError, Handlers, Method
from service.workers.process import WorkerError, WorkerProcess

logger = logging.getLogger(__name__)

_STOP_GRACE_S = 5.0
"""More than a worker gives its last answers."""

_A = TypeVar("_A")
_R = TypeVar("_R")


class Member:
    """``number``: 1 and up. ``counts_fd``: of ``SharedCounts``. ``handlers``: what a worker may call."""

    def __init__(
        self, number: int, addresses: EngineAddresses, command: Sequence[str], counts_fd: int, handlers: Handlers
    ) -> None:
        self.number = number
        self.addresses = addresses
        self.settings = ""
        """What a process is told first: WorkerSettings as JSON."""
        self.is_serving = False
        self._command = command
        self._counts_fd = counts_fd
        self._handlers = handlers
        self._process: WorkerProcess | None = None
        self._channel: Channel | None = None
        self._preparing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"Member({self.number}, pid {self.pid}, {'serving' if self.is_serving else 'not serving'})"

    @property
    def pid(self) -> int | None:
        """Of the process that fills it."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start a process and let it prepare itself. Raises WorkerError if it cannot start."""
        process = self._process = WorkerProcess(self._command, self.number, self._counts_fd)
        logger.info("%s started, pid %d", process.name, process.pid)
        self._channel = await process.open_channel(self._handlers)
        self._preparing = asyncio.ensure_future(self._told(process, self._channel, methods.PREPARE, self.settings))
        await asyncio.sleep(0)  # it is told

    async def prepared(self) -> None:
        """Return when it can be told of cores: an unprepared one would fail at it. Raises WorkerError."""
        assert self._preparing is not None, "started"
        await self._preparing

    async def open(self, opening: methods.Opening) -> None:
        """Return when it serves, once it is ``prepared``. Whatever it is asked from now on comes after this.

        Raises WorkerError.
        """
        assert self._process is not None, "started"
        assert self._channel is not None, "started"
        self.is_serving = True  # no await until it is told: what happens after ``opening`` was made, it is told too
        await self._told(self._process, self._channel, methods.OPEN, opening)

    async def call(self, method: Method[_A, _R], argument: _A) -> _R:
        """Raises ChannelClosedError unless it serves, and CallError."""
        if self._channel is None or not self.is_serving:
            raise ChannelClosedError(f"gateway worker {self.number} does not serve")
        return await self._channel.call(method, argument)

    def kill(self) -> None:
        """Without waiting for it to end."""
        if self._process is not None:
            self._process.kill()

    async def ended(self) -> str:
        """Return when the process is gone, with how it ended: the place is empty."""
        assert self._process is not None, "started"
        process = self._process
        end = f"{process.name}, pid {process.pid}, ended with {await process.exited()}"
        await self.stop()
        return end

    async def stop(self) -> None:
        """Let the last answers leave, then end and reap the process. May be called again."""
        self.is_serving = False
        if self._preparing is not None:
            self._preparing.cancel()
        if self._channel is not None:
            await self._channel.close()
        if self._process is not None:
            await self._process.let_go(_STOP_GRACE_S)
            self._process = self._channel = None

    async def _told(self, process: WorkerProcess, channel: Channel, method: Method[_A, None], argument: _A) -> None:
        """Raises WorkerError, with how the process has ended if it has."""
        try:
            await channel.call(method, argument)
        except CallError as error:
            raise WorkerError(f"{process.name} failed to {method.name}: {error}") from error
        except ChannelClosedError:
            raise WorkerError(f"{process.name} ended with {await process.exited()}") from None
