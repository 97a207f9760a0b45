from collections.abc import AsyncIterator

import pytest

from bench.prompts import make_prompts
from bench.workload import Workload
from sluicegate_client import AsyncClient
from tests.clients.fake_server import fake_server

LOAD = Workload("x", prompt_tokens=40, output_tokens=1, num_requests=5, shared_prefix_tokens=30)


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    with fake_server() as server:
        async with AsyncClient(server.address) as client:
            yield client


async def test_prompts_have_the_length_asked_for_and_are_distinct(client: AsyncClient) -> None:
    """Exactly prompt_tokens tokens each, no two alike."""
    prompts = await make_prompts(client, LOAD, "")
    assert [len(prompt) for prompt in prompts] == [40] * 5
    assert len({tuple(prompt) for prompt in prompts}) == 5


async def test_only_the_shared_prefix_is_shared(client: AsyncClient) -> None:
    """Also between the parts of a run: the warm pass finds nothing else in the cache."""
    prompts = [*await make_prompts(client, LOAD, "cold"), *await make_prompts(client, LOAD, "warm")]
    assert len({tuple(prompt[:30]) for prompt in prompts}) == 1
    assert len({tuple(prompt[30:]) for prompt in prompts}) == 10


async def test_the_same_seed_gives_the_same_prompts(client: AsyncClient) -> None:
    """So that two servers can be compared."""
    assert await make_prompts(client, LOAD, "a") == await make_prompts(client, LOAD, "a")
