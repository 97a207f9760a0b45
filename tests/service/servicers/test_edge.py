"""Errors of methods as the client and the log see them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
import pytest

from service.admission.read_slots import ReadSlots
from service.errors import Internal, NotFound
from service.listener import Listener
from service.servicers.edge import ErrorEdge
from tests.service.errors_of_calls import error_of

Method = Callable[[bytes, Any], Any]


@pytest.fixture
def hang_up() -> str:
    return "cancel"


@pytest.fixture
async def call(hang_up: str) -> AsyncIterator[Callable[[Method], Awaitable[bytes]]]:
    """Calls a method behind the edge: unary if it is a coroutine, else a stream of which the first message is read."""
    listeners: list[Listener] = []
    channels: list[grpc.aio.Channel] = []

    async def serve_and_call(method: Method) -> bytes:
        streams = not asyncio.iscoroutinefunction(method)
        handler = (grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler)(method)
        listener = Listener()
        listener.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", {"M": handler}),))
        listener.bind("127.0.0.1:0")
        await listener.server.start()
        listeners.append(listener)
        channel = grpc.aio.insecure_channel(listener.addresses[0])
        channels.append(channel)
        if streams:
            stream = channel.unary_stream("/S/M")(b"")
            try:
                return await stream.read()
            finally:
                if hang_up == "cancel":
                    stream.cancel()
                else:
                    await channel.close()
        return await channel.unary_unary("/S/M")(b"")

    yield serve_and_call
    for channel in channels:
        await channel.close()
    for listener in listeners:
        await listener.server.stop(None)


def records_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Without what gRPC's poller says when it wakes the loop of an earlier test, which is closed."""
    return [record for record in caplog.records if "PollerCompletionQueue" not in record.getMessage()]


async def test_service_error_keeps_its_words(call: Callable[[Method], Awaitable[bytes]]) -> None:
    """A ServiceError arrives with its code, message, reason and metadata."""

    async def method(_request: bytes, _context: Any) -> bytes:
        raise NotFound("no such thing", reason="THING_NOT_FOUND", thing="x")

    error = await error_of(call(method))
    assert (error.code, error.reason, error.message) == (grpc.StatusCode.NOT_FOUND, "THING_NOT_FOUND", "no such thing")
    assert error.metadata == {"thing": "x"}


async def test_bug_is_logged_and_hidden(
    call: Callable[[Method], Awaitable[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    """An unexpected exception is INTERNAL with an id; the log has the traceback under that id, the client nothing."""

    async def method(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        raise ZeroDivisionError("secret detail")
        yield b""

    with caplog.at_level(logging.ERROR, "service.servicers.edge"):
        error = await error_of(call(method))
    assert (error.code, error.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert "secret" not in error.message
    (record,) = records_of(caplog)
    assert error.metadata["error_id"] in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_known_internal_error_is_logged(
    call: Callable[[Method], Awaitable[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    """An Internal that a method raises itself is told in its own words and logged with its cause under its id."""

    async def method(_request: bytes, _context: Any) -> bytes:
        raise Internal("the engine failed", cause="NaN in the logits")

    with caplog.at_level(logging.ERROR, "service.servicers.edge"):
        error = await error_of(call(method))
    assert "the engine failed" in error.message
    assert "NaN" not in error.message
    (line,) = [record.getMessage() for record in records_of(caplog)]
    assert error.metadata["error_id"] in line
    assert line.endswith("NaN in the logits")


@pytest.mark.usefixtures("hang_up")
@pytest.mark.parametrize("hang_up", ["cancel", "close"])
async def test_abandoned_stream_is_closed_at_once(
    call: Callable[[Method], Awaitable[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    """When the client cancels or goes, the method's generator is closed there and then, and nobody cries in the log."""
    closed = asyncio.Event()

    async def method(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 100_000
        finally:
            closed.set()

    assert await call(method) == b"x" * 100_000
    async with asyncio.timeout(10):
        await closed.wait()
    assert records_of(caplog) == []


@pytest.mark.parametrize("streams", [False, True])
async def test_call_without_a_request(streams: bool) -> None:
    """A call that is closed without its one request is answered: gRPC alone would let it wait for ever."""

    async def method(_request: bytes, _context: Any) -> bytes:
        return b""

    async def stream(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        yield b""

    handler = grpc.unary_stream_rpc_method_handler(stream) if streams else grpc.unary_unary_rpc_method_handler(method)
    listener = Listener()
    listener.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", {"M": handler}),))
    listener.bind("127.0.0.1:0")
    await listener.server.start()
    async with grpc.aio.insecure_channel(listener.addresses[0]) as channel:
        error = await error_of(channel.stream_unary("/S/M")(iter([]), timeout=60))
    assert (error.code, error.reason, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, "NO_REQUEST", ["request"])
    await listener.stop(0)


async def test_bytes_of_all_calls_are_bounded() -> None:
    """Of those that run; what is refused is told when to come again, and fits when another call has ended."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def method(request: bytes, _context: Any) -> bytes:
        begun.set()
        await ended.wait()
        return request

    edge = ErrorEdge(max_held_bytes=1000)
    listener = Listener(edge=edge)
    handler = grpc.unary_unary_rpc_method_handler(method)
    listener.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", {"M": handler}),))
    listener.bind("127.0.0.1:0")
    await listener.server.start()
    async with grpc.aio.insecure_channel(listener.addresses[0]) as channel:
        call = channel.unary_unary("/S/M")
        running = asyncio.ensure_future(call(bytes(900)))
        await begun.wait()
        error = await error_of(call(bytes(101)))
        assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL")
        assert error.retry_after_s
        assert edge.num_message_bytes == 900
        ended.set()
        assert len(await running) == 900
        assert await call(bytes(1000)) == bytes(1000)
    await listener.stop(0)
    assert edge.num_message_bytes == 0


class Relay:
    """Forwards connections to ``address`` and counts what comes back."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self.num_bytes = 0

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        self._server.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        await asyncio.gather(self._pump(reader, far_writer, 0), self._pump(far_reader, writer, 1))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, weight: int) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                self.num_bytes += weight * len(data)
                sink.write(data)
        sink.close()


@pytest.mark.parametrize("streams", [True, False])
async def test_streams_are_not_compressed(streams: bool) -> None:
    """Not even where client and server compress by default, as the unary call shows, which is compressed."""
    answer = bytes(100_000)

    async def stream(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        yield answer

    async def unary(_request: bytes, _context: Any) -> bytes:
        return answer

    gzip = [("grpc.default_compression_algorithm", grpc.Compression.Gzip.value)]
    handler = grpc.unary_stream_rpc_method_handler(stream) if streams else grpc.unary_unary_rpc_method_handler(unary)
    listener = Listener(gzip)
    listener.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", {"M": handler}),))
    listener.bind("127.0.0.1:0")
    await listener.server.start()
    relay = Relay(listener.addresses[0])
    async with grpc.aio.insecure_channel(await relay.start(), compression=grpc.Compression.Gzip) as channel:
        if streams:
            assert [response async for response in channel.unary_stream("/S/M")(b"")] == [answer]
        else:
            assert await channel.unary_unary("/S/M")(b"") == answer
    assert (relay.num_bytes > len(answer)) is streams
    relay.stop()
    await listener.stop(0)


async def test_unread_requests_stay_with_their_clients() -> None:
    """One that is not read yet is not taken in, however much else comes and goes; it is as soon as it is its turn."""
    slots, free = ReadSlots(1), asyncio.Event()
    slot_taken = asyncio.Event()

    async def hold_slot() -> bytes:
        slot_taken.set()
        await free.wait()
        return b""

    async def method(request: bytes, _context: Any) -> bytes:
        return str(len(request)).encode()

    listener = Listener(edge=ErrorEdge(read_slots=slots))
    handlers = {"M": grpc.unary_unary_rpc_method_handler(method)}
    probes = {"Check": grpc.unary_unary_rpc_method_handler(method)}
    listener.server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler("S", handlers),
            grpc.method_handlers_generic_handler("grpc.health.v1.Health", probes),
        )
    )
    listener.bind("127.0.0.1:0")
    await listener.server.start()
    holding = asyncio.ensure_future(slots.read(hold_slot))
    await slot_taken.wait()
    async with grpc.aio.insecure_channel(listener.addresses[0]) as channel:
        call = channel.stream_unary("/S/M")()
        writing = asyncio.ensure_future(call.write(bytes(4_000_000)))
        probe = channel.unary_unary("/grpc.health.v1.Health/Check")
        for _ in range(100):
            assert await probe(bytes(1000)) == b"1000"
        assert not writing.done()
        free.set()
        await holding
        await writing
        await call.done_writing()
        assert await call == b"4000000"
    await listener.stop(0)


async def test_answers_that_nobody_reads_are_bounded() -> None:
    """gRPC keeps a unary answer until it is read: large ones count until then, and small ones go out all the same."""

    async def method(request: bytes, _context: Any) -> bytes:
        return bytes(int(request))

    edge = ErrorEdge(max_held_bytes=1_000_000)
    listener = Listener(edge=edge)
    handler = grpc.unary_unary_rpc_method_handler(method)
    listener.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", {"M": handler}),))
    listener.bind("127.0.0.1:0")
    await listener.server.start()
    no_window = [("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0)]
    async with (
        grpc.aio.insecure_channel(listener.addresses[0], options=no_window) as slow,
        grpc.aio.insecure_channel(listener.addresses[0]) as channel,
    ):
        unread = slow.unary_stream("/S/M")(b"900000")  # A client that takes the one message when it likes.
        async with asyncio.timeout(30):
            while edge.num_answer_bytes == 0:
                await asyncio.to_thread(int)
        call = channel.unary_unary("/S/M")
        error = await error_of(call(b"200000"))
        assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "ANSWERS_UNREAD")
        assert error.retry_after_s
        assert len(await call(b"60000")) == 60_000
        assert len(await unread.read()) == 900_000
        async with asyncio.timeout(30):
            while edge.num_answer_bytes:
                await asyncio.to_thread(int)
        assert len(await call(b"200000")) == 200_000
    await listener.stop(0)
