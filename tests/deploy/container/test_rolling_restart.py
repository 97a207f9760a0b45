"""Servers in containers, under one name, while clients call them all the time: through Envoy, and by that name."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sluicegate_client import AsyncClient, Retry
from tests.deploy.container.replicas import PROXY_PORT, Network, Replica, envoy, network
from tests.deploy.container.transcript import say
from tests.deploy.rolling_restart.load import Load, Seen, under_load

pytestmark = pytest.mark.container

LAME_DUCK_S = 5
LOAD = Load(num_workers=2, num_tokens=40, prompt="Once upon a time")


@dataclass(frozen=True)
class Service:
    """``callers`` are the hosts that call, which find the servers by themselves; ``seen``: what their clients saw."""

    image: str
    network: Network
    stack: AsyncExitStack
    callers: list[str]
    seen: list[Seen]

    async def new_replica(self) -> Replica:
        """One that is ready."""
        return await _new_replica(self.image, self.network, self.stack)


async def _new_replica(image: str, network: Network, stack: AsyncExitStack) -> Replica:
    replica = Replica(image, network, LAME_DUCK_S)
    stack.push_async_callback(replica.close)
    await replica.start()
    return replica


@asynccontextmanager
async def _service(image: str, folder: Path, retry: Retry, load: Load) -> AsyncIterator[tuple[Service, list[Replica]]]:
    """Two replicas that both ways lead to, under load until the block ends."""
    with network() as net:
        async with AsyncExitStack() as stack:
            replicas = [await _new_replica(image, net, stack) for _ in range(2)]
            proxy = stack.enter_context(envoy(net, folder)).ip()
            targets = {"Envoy": f"{proxy}:{PROXY_PORT}", "round_robin": net.servers}
            clients = {way: AsyncClient(target, retry=retry) for way, target in targets.items()}
            for client in clients.values():
                await stack.enter_async_context(client)
                await client.wait_until_ready()
            async with under_load(clients, load) as seen:
                callers = [proxy, net.gateway]
                for replica in replicas:
                    await replica.until_used_by(callers)
                yield Service(image, net, stack, callers, seen), replicas
    for its in seen:
        say(str(its))


async def test_rolling_restart(image: str, tmp_path: Path) -> None:
    """As a Deployment does it: a new one is ready before an old one ends. No request fails, without any retry."""
    async with _service(image, tmp_path, Retry(max_attempts=1), LOAD) as (service, replicas):
        for old in replicas:
            new = await service.new_replica()
            await old.end()
            await new.until_used_by(service.callers)
    assert [its.failures for its in service.seen] == [[], []]
    assert all(its.num_streams and its.num_unary for its in service.seen)


async def test_killed_server(image: str, tmp_path: Path) -> None:
    """SIGKILL: with clients that retry, and streams that go on elsewhere, no request fails either."""
    async with _service(image, tmp_path, Retry(), replace(LOAD, resumes=True)) as (service, replicas):
        for its in service.seen:
            await its.flows.wait()
        await replicas[0].die()
        new = await service.new_replica()
        await new.until_used_by(service.callers)
    assert [its.failures for its in service.seen] == [[], []]
