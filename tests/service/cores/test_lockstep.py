"""Cores in lockstep behind a gateway, each a process, and their coordinator."""

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterable
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from pathlib import Path

import grpc
import psutil
import pytest

from core.wire.handshake import CoreHandshake, HandshakeConfig
from core.wire.messages import EngineInit
from service.cli.options.cores import COORDINATOR_COMMAND
from service.config import CoreConfig, GatewayConfig
from service.models import ModelFiles
from service.server import GatewayServer
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.core.data_parallel.lockstep_core import __name__ as lockstep_core
from tests.core.data_parallel.ranks import Listener
from tests.service.errors_of_calls import error_of
from tests.service.gateway_process import GatewayProcess

CORE = [sys.executable, "-m", lockstep_core]


def a_request(rank: int, max_tokens: int) -> pb.GenerateRequest:
    params = {"max_tokens": max_tokens, "ignore_eos": True}
    return pb.GenerateRequest(
        text="hi", sampling_params=params, output_options={"token_ids": True}, data_parallel_rank=rank
    )


def listener_of(gateway: GatewayProcess) -> Listener:
    (path,) = gateway.folder.glob("*/coordinator_to_front_ends")
    return Listener(f"ipc://{path}")


def next_wave(listener: Listener, wave: int) -> int:
    """The number of a wave after ``wave``, before which all are at rest."""
    while (state := listener.receive_until_drained()).wave <= wave:
        pass
    return state.wave


async def test_waves_of_requests(byte_model: ModelFiles, short_folder: Path) -> None:
    """Requests at one rank or at both complete in wave after wave; the end of all is clean, signalled all at once."""
    async with GatewayProcess(byte_model, short_folder, CORE, data_parallel_size=2, lockstep=True) as gateway:
        address = await gateway.until_ready()
        with closing(listener_of(gateway)) as listener:
            async with grpc.aio.insecure_channel(address) as channel:
                stub = InferenceServiceStub(channel)
                wave = 0
                for ranks in [(0,), (1,), (0, 1), (1,), (0,), (0, 1)]:
                    calls = [stub.Generate(a_request(rank, 5 + rank), timeout=30) for rank in ranks]
                    outputs = [(await call).outputs[0] for call in calls]
                    assert [len(output.token_ids) for output in outputs] == [5 + rank for rank in ranks]
                    wave = await asyncio.to_thread(next_wave, listener, wave)
        processes = [*gateway.cores(), gateway.coordinator()]
        for process in processes:
            process.send_signal(signal.SIGTERM)
        gateway.send_signal(signal.SIGTERM)
        assert await gateway.exit_code() == 0
        assert not any(process.is_running() for process in processes)
        assert gateway.leftovers() == []


async def test_a_coordinator_that_is_killed(byte_model: ModelFiles, short_folder: Path) -> None:
    """With it every core is lost: streams end at once and may be tried elsewhere, the exit code is 1."""
    async with GatewayProcess(byte_model, short_folder, data_parallel_size=2, lockstep=True) as gateway:
        address = await gateway.until_ready()
        async with grpc.aio.insecure_channel(address) as channel:
            requests = [a_request(rank, 1_000_000) for rank in (0, 1)]
            streams = [aiter(InferenceServiceStub(channel).GenerateStream(request)) for request in requests]
            for stream in streams:
                assert (await anext(stream)).HasField("started")
            gateway.coordinator().kill()
            for stream in streams:
                async with asyncio.timeout(10):
                    error = await error_of(_read_to_end(stream))
                assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "CORE_LOST")
        for core in gateway.cores():
            core.kill()  # They would go on with those requests until the gateway has no more patience with them.
        assert await gateway.exit_code() == 1
        assert re.search(r"core is gone: rank 0: the coordinator's process \d+ ended with signal 9", gateway.log)
        assert gateway.leftovers() == []


@pytest.mark.parametrize("address", ["ipc://{folder}/handshake", "tcp://127.0.0.1:{port}", "tcp://[::1]:{port}"])
async def test_what_cores_are_told(
    gateway_config: GatewayConfig, short_folder: Path, unused_tcp_port: int, address: str
) -> None:
    """Where the coordinator listens and where they meet: on the host that they dial. All are told the same."""
    address = address.format(folder=short_folder, port=unused_tcp_port)
    core = CoreConfig(handshake_address=address, data_parallel_size=2, coordinator_command=COORDINATOR_COMMAND)
    server = GatewayServer(replace(gateway_config, core=core))
    children = psutil.Process().children()
    starting = asyncio.ensure_future(server.start())
    async with AsyncExitStack() as cleanup:
        cleanup.push_async_callback(server.stop)
        cleanup.callback(starting.cancel)
        first, second = [await asyncio.to_thread(greet, address, rank) for rank in (0, 1)]
    assert first == second
    told, config = first.addresses, first.parallel_config
    scheme_and_host = address.rpartition(":")[0] if address.startswith("tcp:") else "ipc:"
    for where in (told.coordinator_input, told.coordinator_output, told.frontend_stats_publish_address):
        assert str(where).startswith(scheme_and_host)
    assert config.data_parallel_size == 2
    assert config.data_parallel_master_ip == ("::1" if "::1" in address else "127.0.0.1")
    assert len({config.data_parallel_master_port, *(config.data_parallel_master_port_list or [])}) == 6
    assert psutil.Process().children() == children


def greet(address: str, rank: int) -> EngineInit:
    with CoreHandshake(HandshakeConfig(address, rank, init_timeout_s=30)) as handshake:
        return handshake.greet()


async def _read_to_end(stream: AsyncIterable[pb.GenerateStreamResponse]) -> None:
    async for _event in stream:
        pass
