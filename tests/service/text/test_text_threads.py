"""Threads for long texts."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from service.errors import QueueFull
from service.text.text_threads import MAX_BYTES, NUM_THREADS, TextThreads


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """What the threads wait for; set at the latest when the test is over."""
    event = threading.Event()
    yield event
    event.set()


async def test_work_is_done_off_the_loop() -> None:
    """On another thread; its result and its error are the caller's."""
    threads = TextThreads(1)
    assert await threads.run(1, threading.get_ident) != threading.get_ident()
    assert await threads.run(1, int, "ff", base=16) == 255
    with pytest.raises(ValueError, match="invalid literal"):
        await threads.run(1, int, "x")


async def test_calls_are_bounded(released: threading.Event) -> None:
    """One call more than may be in is refused with a delay; when one has ended there is room again."""
    threads = TextThreads(NUM_THREADS + 1)
    calls = [asyncio.ensure_future(threads.run(1, released.wait)) for _ in range(NUM_THREADS + 1)]
    await asyncio.sleep(0)
    with pytest.raises(QueueFull, match=f"{NUM_THREADS + 1} long texts") as refused:
        await threads.run(1, int, "1")
    assert refused.value.retry_after_s > 0
    released.set()
    await asyncio.gather(*calls)
    await asyncio.sleep(0)
    assert await threads.run(1, int, "1") == 1


async def test_cancelled_call_that_waits_is_forgotten(released: threading.Event) -> None:
    """It is never begun, and no longer counts."""
    threads = TextThreads(NUM_THREADS + 1)
    busy = [asyncio.ensure_future(threads.run(1, released.wait)) for _ in range(NUM_THREADS)]
    begun: list[int] = []
    waiting = asyncio.ensure_future(threads.run(1, begun.append, 1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    released.set()
    await asyncio.gather(*busy)
    assert await threads.run(1, int, "1") == 1
    assert begun == []


async def test_bytes_are_bounded_until_a_thread_is_done_with_them(released: threading.Event) -> None:
    """Also those of a call that was cancelled while it ran: its memory is still in use."""
    threads = TextThreads(10)
    begun = threading.Event()
    call = asyncio.ensure_future(threads.run(MAX_BYTES, lambda: begun.set() or released.wait()))
    await asyncio.to_thread(begun.wait)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with pytest.raises(QueueFull, match=f"{MAX_BYTES} bytes of texts"):
        await threads.run(1, int, "1")
    released.set()
    async with asyncio.timeout(30):
        assert await run_at_last(threads) == 1


async def run_at_last(threads: TextThreads) -> int:
    """What a call with all the bytes returns, as soon as there is room for it."""
    while True:
        try:
            return await threads.run(MAX_BYTES, int, "1")
        except QueueFull:
            await asyncio.sleep(0)
