"""Calls that wait, with and without an end to it."""

import asyncio

from service.admission.live_call import LiveCall
from service.admission.waiting_calls import WaitingCalls
from tests.service.cores.test_suspects import a_call


async def test_in_the_order_in_which_they_came() -> None:
    """Who waits already keeps the place, and the time."""
    waiting, calls = WaitingCalls(), [a_call(name) for name in "abc"]
    waiting.add_for(60, calls[0], lambda _call: None)
    waiting.add(calls[1])
    waiting.add(calls[0])
    assert [*waiting] == calls[:2]
    assert len(waiting) == 2
    assert calls[2] not in waiting
    for call in waiting:
        waiting.discard(call)
    waiting.discard(calls[2])
    assert not len(waiting)


async def test_a_wait_that_ends() -> None:
    """Once; one that ended before does not."""
    waiting, calls = WaitingCalls(), [a_call(name) for name in "ab"]
    over: asyncio.Queue[LiveCall] = asyncio.Queue()
    waiting.add_for(0, calls[0], over.put_nowait)
    waiting.discard(calls[0])
    waiting.add_for(0, calls[1], over.put_nowait)
    async with asyncio.timeout(10):
        assert await over.get() is calls[1]
    assert over.empty()
    assert calls[1] not in waiting
