"""`gateway`: the gateway alone, for a core that dials it."""

import asyncio
import json
import signal
import socket
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from service.cli.gateway import gateway
from service.models import ModelFiles
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.errors_of_calls import error_of
from tests.service.gateway_process import PythonProcess


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:1", "http://x:1", "tcp://x"])
def test_handshake_address_out_of_bounds(byte_model: ModelFiles, address: str) -> None:
    """An address that no core could dial is refused by name."""
    result = CliRunner().invoke(gateway, [str(byte_model.path), "--handshake-address", address])
    assert result.exit_code == 2
    assert address.removeprefix("tcp://") in result.output


@pytest.fixture
def handshake_address() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{taken.getsockname()[1]}"


def gateway_of(byte_model: ModelFiles, folder: Path, handshake_address: str, *more: str) -> PythonProcess:
    addresses = ["--grpc-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0", "--metrics-address", "off"]
    flags = ["--handshake-address", handshake_address, *addresses, "--log-format", "json", *more]
    return PythonProcess(folder, "service", "gateway", str(byte_model.path), *flags)


async def test_remote_core_and_its_death(byte_model: ModelFiles, tmp_path: Path, handshake_address: str) -> None:
    """A core that dials over tcp is served; where none may follow it, its death ends streams, and the gateway."""
    core_flags = ["--handshake-address", handshake_address, "--headless", "--tokens-per-second", "100"]
    async with (
        PythonProcess(tmp_path, "bench.null_core", *core_flags, "--token-ids", "97") as core,
        gateway_of(byte_model, tmp_path, handshake_address, "--max-core-restarts", "0") as process,
        grpc.aio.insecure_channel(await process.until_ready()) as channel,
    ):
        request = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 100_000})
        stream = InferenceServiceStub(channel).GenerateStream(request)
        while (event := await stream.read()).delta.text == "":
            assert event.HasField("started")
        core.send_signal(signal.SIGKILL)
        async with asyncio.timeout(10):
            error = await error_of(read_to_end(stream))
        assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "CORE_LOST")
        assert await process.exit_code() == 1
        assert "closed the connection" in process.log


async def test_a_remote_core_that_is_started_again(
    byte_model: ModelFiles, tmp_path: Path, handshake_address: str
) -> None:
    """Whoever runs it does so; the stream goes on with the one that comes."""
    core_flags = ["--handshake-address", handshake_address, "--headless", "--tokens-per-second", "100"]
    core = "bench.null_core", *core_flags, "--token-ids", "97,98"
    async with (
        gateway_of(byte_model, tmp_path, handshake_address) as process,
        PythonProcess(tmp_path, *core) as first,
        grpc.aio.insecure_channel(await process.until_ready()) as channel,
    ):
        request = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 200, "ignore_eos": True})
        call = asyncio.ensure_future(InferenceServiceStub(channel).Generate(request))
        await InferenceServiceStub(channel).Generate(pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 20}))
        first.send_signal(signal.SIGKILL)
        await process.until_logged("another has 600 s to come")
        async with PythonProcess(tmp_path, *core), asyncio.timeout(60):
            answer = await call
        assert (answer.outputs[0].text, answer.usage.num_output_tokens) == ("ab" * 100, 200)


async def read_to_end(stream: grpc.aio.UnaryStreamCall) -> None:
    while await stream.read() is not grpc.aio.EOF:
        pass


async def test_address_of_another_host(byte_model: ModelFiles, tmp_path: Path) -> None:
    """An address that is not this host's ends the start with a message that names it, and no traceback."""
    async with gateway_of(byte_model, tmp_path, "tcp://192.0.2.1:5000") as process:
        assert await process.exit_code() == 1
        assert "cannot listen at tcp://192.0.2.1" in process.log
        assert "traceback" not in process.log
        assert process.leftovers() == []


async def test_waiting_for_a_core_can_be_ended(byte_model: ModelFiles, tmp_path: Path, handshake_address: str) -> None:
    """Without a core the gateway waits; SIGTERM ends that with another exit code than 0, and its log is JSON lines."""
    async with gateway_of(byte_model, tmp_path, handshake_address) as process:
        await process.until_logged("waiting for a core")
        process.send_signal(signal.SIGTERM)
        assert await process.exit_code() == 1
        messages = [json.loads(line)["message"] for line in process.log.splitlines()]
        assert f"waiting for a core at {handshake_address}" in messages
        assert process.leftovers() == []
