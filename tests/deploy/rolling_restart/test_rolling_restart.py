"""Two servers are restarted, one after the other, while clients call them all the time."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from service.models import ModelFiles
from sluicegate_client import AsyncClient
from tests.deploy.envoy.proxy import proxying, set_backends, shipped
from tests.deploy.rolling_restart.load import Load, under_load
from tests.deploy.rolling_restart.other_proxies import haproxying, nginxing
from tests.deploy.rolling_restart.replicas import Replicas

LAME_DUCK_S = 4.0
"""Envoy's health checks take 2 s at most; the rest is for a machine that is busy."""


@asynccontextmanager
async def clients_of(replicas: Replicas, folder: Path) -> AsyncIterator[dict[str, AsyncClient]]:
    """By how they find the servers."""
    config = shipped("load-balancer.yaml")
    set_backends(config, replicas.addresses)
    with (
        proxying(config, folder) as envoy,
        haproxying(replicas.addresses, folder) as haproxy,
        nginxing(replicas.addresses, folder) as nginx,
    ):
        addresses = {
            "Envoy": envoy.address,
            "HAProxy": haproxy,
            "nginx": nginx,
            "round_robin": f"ipv4:{','.join(replicas.addresses)}",
        }
        async with AsyncExitStack() as stack:
            clients = {way: await stack.enter_async_context(AsyncClient(at)) for way, at in addresses.items()}
            for client in clients.values():
                await client.wait_until_ready()
            yield clients


async def test_no_request_fails(byte_model: ModelFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Behind Envoy, and balanced by the client: not one, unary or streaming, and every answer is whole."""
    with tempfile.TemporaryDirectory(prefix="sg") as folder:
        async with (
            Replicas(byte_model, Path(folder), LAME_DUCK_S) as replicas,
            clients_of(replicas, tmp_path) as clients,
            under_load(clients, Load()) as seen,
        ):
            await replicas.restart_one_by_one()
    with capsys.disabled():
        print("", *seen, sep="\n")
    assert [its.failures for its in seen] == [[], []]
    assert all(its.num_streams and its.num_unary for its in seen)
