"""Calls between two processes over a pair of sockets."""

import asyncio
import socket

import pytest

from service.workers.channel import CallError, Channel, ChannelClosedError, Handlers, Method

ADD = Method[list[int], int]("add", list[int], int)
WAIT = Method[None, None]("wait")
FAIL = Method[str, None]("fail", str)


async def pair(left: Handlers, right: Handlers) -> tuple[Channel, Channel]:
    ends = socket.socketpair()
    return await Channel.over(ends[0], left), await Channel.over(ends[1], right)


async def add(numbers: list[int]) -> int:
    return sum(numbers)


async def test_either_end_may_call() -> None:
    """Arguments and results come as the types that the method has, however large."""
    left, right = await pair({ADD: add}, {ADD: add})
    assert await left.call(ADD, [1, 2]) == 3
    assert await right.call(ADD, [1] * 1_000_000) == 1_000_000
    await left.close()
    await right.close()


async def test_slow_call_holds_up_no_other() -> None:
    """Answers come in any order; a caller that gives up leaves nothing behind."""
    left, right = await pair({}, {ADD: add, WAIT: lambda _: asyncio.Event().wait()})
    slow = asyncio.ensure_future(left.call(WAIT, None))
    assert await left.call(ADD, [1]) == 1
    slow.cancel()
    assert await left.call(ADD, [2]) == 2
    await left.close()
    await right.closed.wait()


async def test_failure_is_the_callers(caplog: pytest.LogCaptureFixture) -> None:
    """What a handler raises, an argument of another type, and a method that is not there fail the one call."""

    async def fail(text: str) -> None:
        raise ValueError(text)

    left, right = await pair({}, {FAIL: fail})
    with pytest.raises(CallError, match="no luck"):
        await left.call(FAIL, "no luck")
    with pytest.raises(CallError, match="Expected `str`"):
        await left.call(Method[int, None]("fail", int), 3)
    with pytest.raises(CallError, match="wait"):
        await left.call(WAIT, None)
    assert "fail failed: ValueError('no luck')" in caplog.text
    await left.close()
    await right.close()


async def test_end_of_the_other_side() -> None:
    """Calls that wait, and any later one, raise as soon as the other end is gone."""
    left, right = await pair({}, {WAIT: lambda _: asyncio.Event().wait()})
    waiting = asyncio.ensure_future(left.call(WAIT, None))
    await asyncio.sleep(0)
    await right.close()
    await left.closed.wait()
    with pytest.raises(ChannelClosedError):
        await waiting
    with pytest.raises(ChannelClosedError):
        await left.call(WAIT, None)
    await left.close()
