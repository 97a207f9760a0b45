"""Clients that call all the time, and what they saw: of each request whether it failed, and how long it was silent."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sluicegate_client import AsyncClient, SluicegateError

BEGUN = "begun"


@dataclass
class Seen:
    """What the clients of one way to reach the servers saw. Times are seconds."""

    way: str
    num_streams: int = 0
    num_unary: int = 0
    failures: list[str] = field(default_factory=list)
    """Those of streams that had begun start with BEGUN: no retry can hide them."""
    longest_pause_s: float = 0.0
    """Between two deltas of a stream."""
    longest_ttft_s: float = 0.0
    flows: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a stream is under way."""

    def __str__(self) -> str:
        return (
            f"{self.way}: {self.num_streams + self.num_unary} requests ({self.num_streams} streams), "
            f"{len(self.failures)} failed, longest pause {self.longest_pause_s:.3f} s, "
            f"longest time to the first delta {self.longest_ttft_s:.3f} s"
            + "".join(f"\n  {count} times {failure}" for failure, count in Counter(self.failures).items())
        )


@dataclass(frozen=True)
class Load:
    """Workers of each client, and what their requests ask for."""

    num_workers: int = 8
    num_tokens: int = 50
    prompt: str = "hi"
    resumes: bool = False
    """Streams go on at another server."""


async def _stream(client: AsyncClient, load: Load, seen: Seen) -> None:
    start = last = time.monotonic()
    num_tokens = 0
    stream = client.stream(load.prompt, max_tokens=load.num_tokens, ignore_eos=True, resume=load.resumes)
    try:
        async for delta in stream:
            now = time.monotonic()
            if num_tokens == 0:
                seen.longest_ttft_s = max(seen.longest_ttft_s, now - start)
            else:
                seen.longest_pause_s = max(seen.longest_pause_s, now - last)
                seen.flows.set()
            num_tokens, last = num_tokens + len(delta.token_ids), now
    except SluicegateError as error:
        seen.failures.append(f"{BEGUN if stream.started else 'not begun'}: {_shown(error)}")
        return
    if num_tokens != load.num_tokens:
        seen.failures.append(f"a stream ended after {num_tokens} of {load.num_tokens} tokens")


async def _unary(client: AsyncClient, load: Load, seen: Seen) -> None:
    try:
        generation = await client.generate(load.prompt, max_tokens=load.num_tokens, ignore_eos=True)
    except SluicegateError as error:
        seen.failures.append(f"unary: {_shown(error)}")
        return
    num_tokens = generation.usage.num_output_tokens
    if num_tokens != load.num_tokens:
        seen.failures.append(f"an answer had {num_tokens} of {load.num_tokens} tokens")


async def _work(client: AsyncClient, load: Load, seen: Seen, is_over: asyncio.Event) -> None:
    """Streams and unary calls in turn."""
    while not is_over.is_set():
        seen.num_streams += 1
        await _stream(client, load, seen)
        if not is_over.is_set():
            seen.num_unary += 1
            await _unary(client, load, seen)


def _shown(error: SluicegateError) -> str:
    return " ".join(filter(None, [error.code.name, error.reason, str(error)]))


@asynccontextmanager
async def under_load(clients: dict[str, AsyncClient], load: Load) -> AsyncIterator[list[Seen]]:
    """Keeps calling while the block runs; by its end every request has ended. ``clients`` by how they find servers."""
    seen = [Seen(way) for way in clients]
    is_over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for client, its in zip(clients.values(), seen, strict=True):
            for _ in range(load.num_workers):
                group.create_task(_work(client, load, its, is_over))
        try:
            yield seen
        finally:
            is_over.set()
