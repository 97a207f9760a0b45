"""Calls between two processes over a pair of sockets that nobody else can reach. Either end may call the other.

call ──▶ size, [0, id, method, argument] ──▶ handler         the calls of one end begin in order
     ◀── size, [1, id, result or error]  ◀──┘                and are answered in any
"""

import asyncio
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import NoneType
from typing import Any, Generic, TypeVar

import msgspec

logger = logging.getLogger(__name__)

_A = TypeVar("_A")
_R = TypeVar("_R")
_SIZE_BYTES = 4


class ChannelClosedError(Exception):
    """The other end is gone."""


class CallError(Exception):
    """The other end failed at a call; the text says how."""


@dataclass(frozen=True)
class Method(Generic[_A, _R]):
    """What can be called, and of which types argument and result are."""

    name: str
    argument: Any = NoneType
    result: Any = NoneType


Handlers = Mapping[Method[Any, Any], Callable[[Any], Awaitable[Any]]]


class _Call(msgspec.Struct, array_like=True, tag=0):
    call_id: int
    method: str
    argument: msgspec.Raw


class _Answer(msgspec.Struct, array_like=True, tag=1):
    call_id: int
    result: msgspec.Raw
    error: str | None = None


class Channel:
    """One end. ``closed`` is set when the other end is gone, or this one was closed. Owned by the event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handlers: Handlers) -> None:
        self._reader, self._writer = reader, writer
        self._handlers = {method.name: (method, handler) for method, handler in handlers.items()}
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._working: set[asyncio.Task[None]] = set()
        self._decoder = msgspec.msgpack.Decoder(_Call | _Answer)
        self.closed = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def over(cls, sock: socket.socket, handlers: Handlers) -> "Channel":
        """One end of ``sock``, which is the channel's from now on."""
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        return cls(reader, writer, handlers)

    async def call(self, method: Method[_A, _R], argument: _A) -> _R:
        """Raises ChannelClosedError, and CallError with what the handler raised."""
        if self.closed.is_set():
            raise ChannelClosedError(f"{method.name}: the other end is gone")
        call_id = next(self._ids)
        answer = self._waiting[call_id] = asyncio.get_running_loop().create_future()
        try:
            self._send(_Call(call_id, method.name, msgspec.Raw(msgspec.msgpack.encode(argument))))
            result: _R = msgspec.msgpack.decode(await answer, type=method.result)
            return result
        finally:
            del self._waiting[call_id]

    async def close(self) -> None:
        """Hang up. May be called twice."""
        self._reading.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading

    async def _read(self) -> None:
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    size = int.from_bytes(await self._reader.readexactly(_SIZE_BYTES))
                    self._take(self._decoder.decode(await self._reader.readexactly(size)))
        finally:
            self._end()

    def _take(self, message: _Call | _Answer) -> None:
        if isinstance(message, _Call):
            task = asyncio.ensure_future(self._work(message))
            self._working.add(task)
            task.add_done_callback(self._working.discard)
        elif (answer := self._waiting.get(message.call_id)) is not None and not answer.done():
            if message.error is None:
                answer.set_result(message.result)
            else:
                answer.set_exception(CallError(message.error))

    async def _work(self, call: _Call) -> None:
        try:
            method, handler = self._handlers[call.method]
            argument = msgspec.msgpack.decode(call.argument, type=method.argument)
            result = msgspec.Raw(msgspec.msgpack.encode(await handler(argument)))
            self._send(_Answer(call.call_id, result))
        except Exception as error:
            logger.warning("%s failed: %r", call.method, error)
            self._send(_Answer(call.call_id, msgspec.Raw(msgspec.msgpack.encode(None)), str(error) or repr(error)))

    def _send(self, message: _Call | _Answer) -> None:
        if not self.closed.is_set():
            document = msgspec.msgpack.encode(message)
            self._writer.write(len(document).to_bytes(_SIZE_BYTES) + document)

    def _end(self) -> None:
        self.closed.set()
        self._writer.close()
        for task in self._working:
            task.cancel()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ChannelClosedError("the other end is gone"))
