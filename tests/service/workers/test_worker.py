"""A worker by itself: what it answers to the primary, from its start on."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from core.wire.messages import EngineAddresses, LoRARequest
from service.admission.admission import NUM_BUDGETS
from service.config import GatewayConfig, ListenConfig, WorkersConfig
from service.workers import methods
from service.workers.channel import Method
from service.workers.methods import Opening, Report
from service.workers.settings import WorkerSettings
from service.workers.shared_counts import new_memory
from service.workers.worker import Worker
from sluicegate.third_party.inference import grpc_service_pb2 as kserve_pb
from sluicegate.third_party.inference.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from sluicegate.v1 import control_service_pb2 as pb
from tests.service.fake_core import FakeCore


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    counts_fd = new_memory(2, NUM_BUDGETS)
    worker = Worker(counts_fd)
    yield worker
    await worker.stop()
    os.close(counts_fd)


async def ask(worker: Worker, method: Method[Any, Any], argument: object = None) -> Any:
    """As the primary does."""
    return await worker.handlers[method](argument)


async def test_what_it_is_told_while_it_is_opened(
    worker: Worker, gateway_config: GatewayConfig, core: FakeCore, tmp_path: Path
) -> None:
    """Questions have the answer of one that has nothing; what is news by then outlasts what it began with."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    listen = ListenConfig((address,), "127.0.0.1:0")
    config = replace(gateway_config, listen=listen, workers=WorkersConfig(2, ("unused",)))
    addresses = EngineAddresses([f"ipc://{tmp_path}/requests1"], [f"ipc://{tmp_path}/outputs1"])
    settings = WorkerSettings.of(1, config, listen, addresses)
    await ask(worker, methods.PREPARE, settings.to_json())
    opening = asyncio.ensure_future(ask(worker, methods.OPEN, Opening([LoRARequest("a", 1, "/a")])))
    await asyncio.sleep(0)
    assert await ask(worker, methods.ABORT, ["r"]) == 0
    assert cast(Report, await ask(worker, methods.REPORT_LOAD)).counted == b""
    await ask(worker, methods.FORGET_PREFIXES)
    await ask(worker, methods.SET_ASLEEP, True)
    both = [LoRARequest("a", 1, "/a"), LoRARequest("b", 2, "/b")]
    setting = asyncio.ensure_future(ask(worker, methods.SET_ADAPTERS, both))
    core.connect(addresses)
    async with asyncio.timeout(60):
        await asyncio.gather(opening, setting)
    report = cast(Report, await ask(worker, methods.REPORT_LOAD))
    assert pb.Load.FromString(report.counted).ranks[0].is_answering
    async with grpc.aio.insecure_channel(address) as channel:
        kserve = GRPCInferenceServiceStub(channel)
        assert not (await kserve.ServerReady(kserve_pb.ServerReadyRequest(), timeout=30)).ready
        index = await kserve.RepositoryIndex(kserve_pb.RepositoryIndexRequest(), timeout=30)
        assert [model.name for model in index.models][1:] == ["a", "b"]
