"""Two servers are restarted, one after the other, while clients call them all the time."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from service.models import ModelFiles
from sluicegate_client import AsyncClient, Retry
from tests.deploy.envoy.proxy import proxying, set_backends, shipped
from tests.deploy.rolling_restart.load import BEGUN, Load, Seen, under_load
from tests.deploy.rolling_restart.other_proxies import haproxying
from tests.deploy.rolling_restart.replicas import Replicas

LAME_DUCK_S = 5.0
"""Envoy notices within 2 s, HAProxy within 4; the rest is for a machine that is busy."""


@asynccontextmanager
async def clients_of(replicas: Replicas, folder: Path, retry: Retry) -> AsyncIterator[dict[str, AsyncClient]]:
    """By how they find the servers. ``retry``: whether they call again what has failed."""
    config = shipped("load-balancer.yaml")
    set_backends(config, replicas.addresses)
    with proxying(config, folder) as envoy, haproxying(replicas.addresses, folder) as haproxy:
        own = f"ipv4:{','.join(replicas.addresses)}"
        addresses = {"Envoy": envoy.address, "HAProxy": haproxy, "round_robin": own}
        async with AsyncExitStack() as stack:
            clients = {way: AsyncClient(at, retry=retry) for way, at in addresses.items()}
            for client in clients.values():
                await stack.enter_async_context(client)
                await client.wait_until_ready()
            yield clients


async def test_no_request_fails(byte_model: ModelFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Through a proxy, and balanced by the client: not one, unary or streaming, and every answer is whole."""
    with tempfile.TemporaryDirectory(prefix="sg") as folder:
        async with (
            Replicas(byte_model, Path(folder), LAME_DUCK_S) as replicas,
            clients_of(replicas, tmp_path, Retry(max_attempts=1)) as clients,
            under_load(clients, Load()) as seen,
        ):
            await replicas.restart_one_by_one()
    _show(seen, capsys)
    assert [its.failures for its in seen] == [[], [], []]
    assert all(its.num_streams and its.num_unary for its in seen)


async def test_a_server_that_dies(byte_model: ModelFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SIGKILL: streams that it had begun go on at the other one if their client asks for that, else they fail.

    All else is called again. Nothing is lost or doubled: every answer that ends has the tokens it should have.
    """
    with tempfile.TemporaryDirectory(prefix="sg") as folder:
        async with (
            Replicas(byte_model, Path(folder), 0) as replicas,
            clients_of(replicas, tmp_path, Retry()) as clients,
            under_load(clients, Load(num_workers=4, resumes=True)) as resuming,
            under_load(clients, Load(num_workers=4)) as ending,
        ):
            mortal = replicas.all[0]
            for its in (*resuming, *ending):
                await its.flows.wait()
            await mortal.die()
            await mortal.start()
            await mortal.until_used()
    _show([*resuming, *ending], capsys)
    assert [its.failures for its in resuming] == [[], [], []]
    assert [failure for its in ending for failure in its.failures if not failure.startswith(BEGUN)] == []


def _show(seen: list[Seen], capsys: pytest.CaptureFixture[str]) -> None:
    """The figures are for whoever reads: nothing is promised of times."""
    with capsys.disabled():
        print("", *seen, sep="\n")
