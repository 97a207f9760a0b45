"""Sessions: many requests of the Python client on one stream."""

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from sluicegate_client import (
    AsyncClient,
    CallCancelledError,
    DeadlineExceededError,
    FinishReason,
    InvalidRequestError,
    MultiplexedSession,
    OverloadedError,
    UnavailableError,
    Usage,
)
from tests.clients.fake_server import FakeServer

SOON_S = 10.0


@pytest.fixture
async def client(server: FakeServer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.address) as client:
        yield client


@pytest.fixture
async def session(client: AsyncClient) -> AsyncIterator[MultiplexedSession]:
    async with client.multiplexed() as session:
        yield session


async def aborted(server: FakeServer) -> list[str]:
    """As soon as there is one."""
    async with asyncio.timeout(SOON_S):
        while not server.service.aborted:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    return server.service.aborted


async def test_gives_what_calls_of_their_own_give(client: AsyncClient, session: MultiplexedSession) -> None:
    """Streams and answers, with all that is told beside the text."""
    alone = await client.generate("one two", n=2)
    shared = await session.generate("one two", n=2, request_id="r")
    assert [output.text for output in shared.outputs] == [output.text for output in alone.outputs]
    assert [output.token_ids for output in shared.outputs] == [[0, 1], [0, 1]]
    assert (shared.request_id, shared.usage, shared.outputs[1].stop) == ("r", Usage(2, 0, 4), "end")
    stream = session.stream("one two")
    assert "".join([delta.text async for delta in stream]) == "one two "
    assert stream.usage == Usage(2, 0, 2)
    assert stream.finished[0].finish_reason is FinishReason.STOP


async def test_many_streams_share_one_call(session: MultiplexedSession, server: FakeServer) -> None:
    """They interleave, and none takes what is another's."""

    async def ask(index: int) -> str:
        return "".join([delta.text async for delta in session.stream(f"number {index}")])

    assert await asyncio.gather(*map(ask, range(50))) == [f"number {index} " for index in range(50)]
    assert len(server.service.requests) == 50


async def test_what_is_not_read_is_merged(session: MultiplexedSession) -> None:
    """One delta, however many had come, with all their text and tokens."""
    late = session.stream(" ".join(["word"] * 100))
    await session.generate("after")
    assert [(delta.text, delta.token_ids) async for delta in late] == [("word " * 100, [*range(100)])]


@pytest.mark.parametrize("way", ["cancel", "with", "drop"])
async def test_leaving_a_stream_aborts_its_request_alone(
    session: MultiplexedSession, server: FakeServer, way: str
) -> None:
    """cancel(), the end of the async with block and dropping the stream reach the server; another stream goes on."""
    other = session.stream("other hang", request_id="other")
    stream = session.stream("one hang", request_id="left")
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
    assert await aborted(server) == ["left"]
    assert (await session.generate("after")).text == "after "
    assert (await anext(other)).text == "other "
    assert not other.is_over


async def test_stream_that_is_over_aborts_nothing(session: MultiplexedSession, server: FakeServer) -> None:
    """Neither when it is left, nor when it is dropped; and its id may be used again."""
    for _ in range(3):
        async with session.stream("one", request_id="same") as stream:
            assert [delta.text async for delta in stream] == ["one "]
        stream.cancel()
    del stream
    await session.generate("after")
    assert server.service.aborted == []


async def test_errors_are_of_one_request(session: MultiplexedSession) -> None:
    """With everything that an error of its own call would say."""
    with pytest.raises(InvalidRequestError) as refused:
        await session.generate("refuse")
    assert refused.value.violations[0].field == "sampling_params.top_p"
    with pytest.raises(OverloadedError) as overloaded:
        await session.generate("overload")
    assert (overloaded.value.reason, overloaded.value.retry_after) == ("QUEUE_FULL", 1.5)
    assert (await session.generate("fine")).text == "fine "


async def test_id_of_a_stream_that_is_not_over(session: MultiplexedSession) -> None:
    """Is refused here already, also once it was cancelled: what still comes of it would be taken for the second's."""
    first = session.stream("one hang", request_id="same")
    with pytest.raises(ValueError, match="'same' is the id of a stream that is not over"):
        session.stream("two", request_id="same")
    assert (await anext(first)).text == "one "
    first.cancel()
    with pytest.raises(ValueError, match="'same' is the id of a stream that is not over"):
        session.stream("two", request_id="same")


async def test_failure_of_the_call_is_every_stream_s(session: MultiplexedSession) -> None:
    """Those that wait raise, after what they had, and what is asked for later does too."""
    hanging = session.stream("one hang")
    assert (await anext(hanging)).text == "one "
    with pytest.raises(UnavailableError) as left:
        await session.generate("break")
    assert left.value.retry_after == 2.0
    with pytest.raises(UnavailableError):
        await anext(hanging)
    with pytest.raises(UnavailableError):
        session.stream("more")


async def test_deadline_of_the_session(client: AsyncClient) -> None:
    """Ends every stream."""
    async with client.multiplexed(timeout=0.2) as session:
        stream = session.stream("one hang")
        with pytest.raises(DeadlineExceededError):
            await asyncio.wait_for(_all_of(stream), SOON_S)


async def test_leaving_the_session_ends_the_call(client: AsyncClient, server: FakeServer) -> None:
    """And with it every stream."""
    async with client.multiplexed() as session:
        stream = session.stream("one hang")
        assert (await anext(stream)).text == "one "
    assert await asyncio.to_thread(server.service.ended.wait, SOON_S)
    with pytest.raises(CallCancelledError):
        await anext(stream)


async def _all_of(stream: AsyncIterator[object]) -> list[object]:
    return [each async for each in stream]
