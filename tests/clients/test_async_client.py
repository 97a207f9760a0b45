import asyncio
import gc
from collections.abc import AsyncIterator
from zlib import crc32

import pytest

from sluicegate_client import (
    AsyncClient,
    CallCancelledError,
    DeadlineExceededError,
    FinishReason,
    InvalidRequestError,
    OverloadedError,
    Retry,
    UnavailableError,
    Usage,
)
from tests.clients.fake_server import FakeServer, fake_server

SOON_S = 10.0


@pytest.fixture
async def client(server: FakeServer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.address) as client:
        yield client


async def _ended(server: FakeServer) -> bool:
    return await asyncio.to_thread(server.service.ended.wait, SOON_S)


async def test_generate_and_stream_give_the_same(client: AsyncClient) -> None:
    """The answer of generate is the joined deltas of stream."""
    generation = await client.generate("one two")
    stream = client.stream("one two")
    assert "".join([delta.text async for delta in stream]) == generation.text
    assert stream.usage == generation.usage == Usage(2, 0, 2)
    assert stream.finished[0].finish_reason is FinishReason.STOP


async def test_many_streams_run_at_once(client: AsyncClient) -> None:
    """Streams of one client interleave."""

    async def ask(index: int) -> str:
        return "".join([delta.text async for delta in client.stream(f"number {index}")])

    assert await asyncio.gather(*map(ask, range(8))) == [f"number {index} " for index in range(8)]


@pytest.mark.parametrize("way", ["cancel", "with", "break"])
async def test_leaving_a_stream_cancels_the_call(client: AsyncClient, server: FakeServer, way: str) -> None:
    """cancel(), the end of the async with block and dropping the stream all reach the server."""
    stream = client.stream("one hang")
    assert (await anext(stream)).text == "one "
    if way == "cancel":
        stream.cancel()
        assert [delta async for delta in stream] == []
    elif way == "with":
        async with stream:
            pass
    else:
        del stream
        gc.collect()
    assert await _ended(server)


async def test_cancel_from_another_task_ends_the_iteration(client: AsyncClient) -> None:
    """A reader that waits for a delta is let go quietly."""
    stream = client.stream("one hang")
    await anext(stream)
    asyncio.get_running_loop().call_soon(stream.cancel)
    assert [delta async for delta in stream] == []


async def test_cancelling_the_task_cancels_the_call(client: AsyncClient, server: FakeServer) -> None:
    """asyncio's own cancellation passes through, and the server is told."""
    stream = client.stream("one hang")
    await anext(stream)
    reader = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await _ended(server)


async def test_errors_are_the_same_as_those_of_the_sync_client(client: AsyncClient) -> None:
    """Violations, retry_after and the deadline."""
    with pytest.raises(InvalidRequestError) as raised:
        await anext(client.stream("refuse"))
    assert raised.value.violations[0].field == "sampling_params.top_p"
    with pytest.raises(OverloadedError) as overloaded:
        await client.generate("overload", timeout=1)
    assert overloaded.value.retry_after == 1.5
    with pytest.raises(DeadlineExceededError):
        await client.generate("hang", timeout=0.2)


async def test_no_server_is_said_with_the_address() -> None:
    """A connection refused is readable and says where."""
    async with AsyncClient("127.0.0.1:1", retry=Retry(max_attempts=1)) as client:
        with pytest.raises(UnavailableError, match=r"no connection to 127.0.0.1:1: "):
            await client.tokenize("x")


async def test_tokenize_and_detokenize(client: AsyncClient) -> None:
    """Text to tokens, tokens to text."""
    assert await client.tokenize("a bcd") == [crc32(b"a"), crc32(b"bcd")]
    assert await client.detokenize([1, 2]) == "x xx"


async def test_wait_until_ready_waits_for_health_or_gives_up() -> None:
    """It returns once the server serves, and raises at its timeout."""
    with fake_server(serving=False) as server:
        async with AsyncClient(server.address) as client:
            with pytest.raises(DeadlineExceededError):
                await client.wait_until_ready(timeout=0.2)
            waiting = asyncio.create_task(client.wait_until_ready(SOON_S))
            server.set_serving(True)
            await waiting


async def test_closing_the_client_under_a_stream_raises(server: FakeServer) -> None:
    """Only cancel() is quiet."""
    client = AsyncClient(server.address)
    stream = client.stream("one hang")
    await anext(stream)
    await client.close()
    with pytest.raises(CallCancelledError):
        await anext(stream)
