"""Calls at the level of frames, against a real gRPC server."""

import asyncio

import pytest

from bench.gateways.api import GENERATE_STREAM, Stream
from bench.gateways.http2 import Connection
from tests.clients.fake_server import fake_server


async def test_calls_side_by_side() -> None:
    """Every call gets its own messages, with times that do not fall, and its status."""
    with fake_server() as server:
        connection = await Connection.open("127.0.0.1", int(server.address.rpartition(":")[2]))
        streams = [Stream(f"s{number}", [1, 2], number) for number in range(1, 9)]
        calls = [connection.start(GENERATE_STREAM.path, GENERATE_STREAM.request(stream)) for stream in streams]
        await asyncio.wait_for(asyncio.gather(*(call.ended for call in calls)), 60)
        connection.close()
    for call, stream in zip(calls, streams, strict=True):
        tokens = [num for _, message in call.messages for _, num in GENERATE_STREAM.tokens_of(message)]
        assert (sum(tokens), call.status) == (stream.num_tokens, 0)
        assert [time for time, _ in call.messages] == sorted(time for time, _ in call.messages)


async def test_a_call_that_fails_ends_with_its_status() -> None:
    """A method that is not there is UNIMPLEMENTED."""
    with fake_server() as server:
        connection = await Connection.open("127.0.0.1", int(server.address.rpartition(":")[2]))
        call = connection.start("/no.Service/Method", b"")
        await asyncio.wait_for(call.ended, 60)
        connection.close()
    assert (call.messages, call.status) == ([], 12)


async def test_the_end_of_a_connection_ends_its_calls() -> None:
    """Nobody waits for a server that is gone."""
    with fake_server() as server:
        connection = await Connection.open("127.0.0.1", int(server.address.rpartition(":")[2]))
    call = connection.start(GENERATE_STREAM.path, b"")
    await asyncio.wait_for(call.ended, 60)
    assert call.status == -1


async def test_nobody_there() -> None:
    """The error is the system's."""
    with pytest.raises(ConnectionRefusedError):
        await Connection.open("127.0.0.1", 9)
