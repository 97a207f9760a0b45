"""Writes that do not end."""

import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest

from service.admission.stall_watch import StallWatch
from service.errors import Aborted


async def test_write_that_does_not_end(caplog: pytest.LogCaptureFixture) -> None:
    """Its generator is closed while it is still under way; a generator that does not end well is logged."""
    closed = asyncio.Event()

    async def responses() -> AsyncGenerator[bytes]:
        try:
            yield b""
        finally:
            closed.set()
            raise ZeroDivisionError

    watch, generator = StallWatch(0.02), responses()
    await anext(generator)
    with watch.follow(generator, lambda: "ipv4:1.2.3.4:5") as writing:
        writing.since = watch.tick
        async with asyncio.timeout(30):
            await closed.wait()
        with pytest.raises(Aborted, match="did not read"):
            await writing.end_if_cut()
    assert watch.num_cut == 1
    assert "1.2.3.4" in caplog.text
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]


async def test_between_writes_nothing_is_cut() -> None:
    """However long that is; and with no stream left nothing ticks."""

    async def responses() -> AsyncGenerator[bytes]:
        yield b""

    watch = StallWatch(0.02)
    with watch.follow(responses(), str) as writing:
        async with asyncio.timeout(30):
            while watch.tick < 30:
                await asyncio.to_thread(int)
        await writing.end_if_cut()
    assert watch.num_cut == 0


async def test_call_that_ends_while_it_is_cut() -> None:
    """Its generator is closed once, however long that takes."""
    may_end = asyncio.Event()

    async def responses() -> AsyncGenerator[bytes]:
        try:
            yield b""
        finally:
            await may_end.wait()

    watch, generator = StallWatch(60.0), responses()
    await anext(generator)
    with watch.follow(generator, str) as writing:
        writing.cut()
        ending = asyncio.ensure_future(writing.aclose())
        await asyncio.sleep(0)
        may_end.set()
        await ending
    assert generator.ag_frame is None
