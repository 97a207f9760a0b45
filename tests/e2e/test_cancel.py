import asyncio
import random

from sluicegate_client import AsyncClient, DeadlineExceededError
from tests.e2e.server import Server

NUM_STREAMS = 200


async def _leave_at_a_random_moment(client: AsyncClient, rng: random.Random) -> None:
    """After some deltas or at a deadline, whichever comes first; before the first as likely as later."""
    num_deltas, timeout_s = rng.randrange(4), rng.uniform(0, 4)
    stream = client.stream(f"Story {rng.random()}:", max_tokens=2000, ignore_eos=True, timeout=timeout_s)
    try:
        for _ in range(num_deltas):
            await anext(stream)
    except DeadlineExceededError:
        return
    stream.cancel()


async def _leave_them_all(address: str) -> None:
    rng = random.Random(0)
    async with AsyncClient(address) as client:
        await asyncio.gather(*(_leave_at_a_random_moment(client, rng) for _ in range(NUM_STREAMS)))


def test_streams_left_at_random_moments_leave_nothing_behind(server: Server) -> None:
    """Nothing runs, nothing waits, every block is free, and the server answers as before."""
    asyncio.run(_leave_them_all(server.address))
    load = server.wait_until_idle()
    assert (load.num_running, load.num_waiting, load.num_requests, load.kv_cache_usage) == (0, 0, 0, 0.0)
