"""gRPC calls at the level of frames: so cheap to receive that the gateway, not this client, is what is measured.

Only what the benchmark needs of RFC 9113: calls are small, answers are left as bytes for after the run, and windows are
opened so wide at the start that no answer ever waits for them.
"""

import asyncio
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import hpack

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7, 0x8
_ACK = _END_STREAM = 0x1
_END_HEADERS = 0x4
_INITIAL_WINDOW_SIZE = 0x4
_MAX_WINDOW = 2**31 - 1
_FRAME_HEADER_BYTES = 9
_MESSAGE_HEADER_BYTES = 5


@dataclass(eq=False)
class Call:
    """``messages`` with the monotonic time at which each was complete. ``status``: gRPC's code, -1: the call broke."""

    stream_id: int
    ended: "asyncio.Future[None]"
    messages: list[tuple[float, bytes]] = field(default_factory=list)
    status: int = -1
    rest: bytes = b""


class Connection(asyncio.Protocol):
    """One HTTP/2 connection in clear text. Owned by one event loop."""

    def __init__(self) -> None:
        self._encoder, self._decoder = hpack.Encoder(), hpack.Decoder()
        self._calls: dict[int, Call] = {}
        self._next_id = 1
        self._rest = b""
        self._transport: asyncio.Transport | None = None
        self._actions: dict[int, Callable[[int, int, bytes], None]] = {
            _DATA: self._on_data,
            _HEADERS: self._on_headers,
            _RST_STREAM: self._on_reset,
            _SETTINGS: self._on_settings,
            _PING: self._on_ping,
        }

    @classmethod
    async def open(cls, host: str, port: int) -> "Connection":
        """Raises OSError if nobody listens there."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        return connection

    def start(self, path: str, message: bytes, is_last: bool = True) -> Call:
        """Call the method at ``/package.Service/Method``; with more messages to come, unless ``is_last``."""
        call = Call(self._next_id, asyncio.get_running_loop().create_future())
        self._next_id += 2
        self._calls[call.stream_id] = call
        headers = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
        headers += [("content-type", "application/grpc"), ("te", "trailers")]
        self._send(_HEADERS, _END_HEADERS, call.stream_id, self._encoder.encode(headers))
        self.send(call, message, is_last)
        return call

    def send(self, call: Call, message: bytes, is_last: bool = False) -> None:
        """One more message of the call."""
        framed = b"\0" + struct.pack(">I", len(message)) + message
        self._send(_DATA, _END_STREAM if is_last else 0, call.stream_id, framed)

    def close(self) -> None:
        """Ends what still runs."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(_PREFACE)
        self._send(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, _MAX_WINDOW))
        self._send(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _MAX_WINDOW - 65_535))

    def data_received(self, data: bytes) -> None:
        data, start = self._rest + data, 0
        while len(data) - start >= _FRAME_HEADER_BYTES:
            length, kind, flags = int.from_bytes(data[start : start + 3]), data[start + 3], data[start + 4]
            end = start + _FRAME_HEADER_BYTES + length
            if len(data) < end:
                break
            stream_id = int.from_bytes(data[start + 5 : start + 9]) & _MAX_WINDOW
            if action := self._actions.get(kind):
                action(stream_id, flags, data[start + _FRAME_HEADER_BYTES : end])
            start = end
        self._rest = data[start:]

    def connection_lost(self, _error: Exception | None) -> None:
        for call in [*self._calls.values()]:
            self._end(call)

    def _on_data(self, stream_id: int, flags: int, payload: bytes) -> None:
        if (call := self._calls.get(stream_id)) is None:
            return
        now, data, start = time.monotonic(), call.rest + payload, 0
        while len(data) - start >= _MESSAGE_HEADER_BYTES:
            end = start + _MESSAGE_HEADER_BYTES + int.from_bytes(data[start + 1 : start + 5])
            if len(data) < end:
                break
            call.messages.append((now, data[start + _MESSAGE_HEADER_BYTES : end]))
            start = end
        call.rest = data[start:]
        if flags & _END_STREAM:
            self._end(call)

    def _on_headers(self, stream_id: int, flags: int, payload: bytes) -> None:
        """Decoded even where nobody asks: HPACK has a state."""
        headers = {str(name): str(value) for name, value in self._decoder.decode(payload)}
        if (call := self._calls.get(stream_id)) is None:
            return
        call.status = int(headers.get("grpc-status", call.status))
        if flags & _END_STREAM:
            self._end(call)

    def _on_reset(self, stream_id: int, _flags: int, _payload: bytes) -> None:
        if (call := self._calls.get(stream_id)) is not None:
            self._end(call)

    def _on_settings(self, _stream_id: int, flags: int, _payload: bytes) -> None:
        if not flags & _ACK:
            self._send(_SETTINGS, _ACK, 0, b"")

    def _on_ping(self, _stream_id: int, flags: int, payload: bytes) -> None:
        if not flags & _ACK:
            self._send(_PING, _ACK, 0, payload)

    def _end(self, call: Call) -> None:
        self._calls.pop(call.stream_id, None)
        if not call.ended.done():
            call.ended.set_result(None)

    def _send(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        assert self._transport is not None, "connected"
        header = len(payload).to_bytes(3) + bytes((kind, flags)) + stream_id.to_bytes(4)
        self._transport.write(header + payload)
