"""The bytes that calls hold."""

import asyncio

import pytest

from service.admission.budget import Budget
from service.admission.held_message import HeldMessage
from service.errors import QueueFull


def test_counted_until_the_call_ends() -> None:
    """The next request of a call takes the place of the one before; what does not fit is not counted."""
    budget = Budget(100)
    stream, other = HeldMessage(budget), HeldMessage(budget)
    stream.hold(bytes(60))
    stream.hold(bytes(70))
    assert budget.held == 70
    with pytest.raises(QueueFull, match="100 bytes together and have 70, this one has 40") as refused:
        other.hold(bytes(40))
    assert refused.value.retry_after_s > 0
    other.release()
    assert budget.held == 70
    stream.release()
    stream.release()
    assert budget.held == 0


async def test_stream_of_requests_waits_for_room() -> None:
    """Its other requests go on meanwhile; what never fits is refused all the same."""
    budget = Budget(100)
    unary, stream = HeldMessage(budget), HeldMessage(budget)
    unary.hold(bytes(60))
    await stream.hold_when_there_is_room(bytes(40))
    waiting = asyncio.ensure_future(stream.hold_when_there_is_room(bytes(50)))
    await asyncio.sleep(0)
    assert not waiting.done()
    unary.release()
    async with asyncio.timeout(30):
        await waiting
    assert budget.held == 50
    with pytest.raises(QueueFull, match="this one has 101"):
        await stream.hold_when_there_is_room(bytes(101))
