"""Work that goes on without whoever asked for it."""

import asyncio

import pytest

from service.to_the_end import ToTheEnd


async def test_the_caller_gets_what_comes_of_it() -> None:
    """The result, or the exception."""

    async def work(fails: bool) -> int:
        if fails:
            raise ValueError("no")
        return 7

    running = ToTheEnd()
    assert await running.run(work(False)) == 7
    with pytest.raises(ValueError, match="no"):
        await running.run(work(True))


async def test_it_ends_although_the_caller_has_left() -> None:
    """And a failure that nobody waits for is not complained of."""
    may_go_on, has_ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await may_go_on.wait()
        has_ended.set()
        raise ValueError("nobody hears it")

    caller = asyncio.ensure_future(ToTheEnd().run(work()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    may_go_on.set()
    await asyncio.wait_for(has_ended.wait(), 10)
