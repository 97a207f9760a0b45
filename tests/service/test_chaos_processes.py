"""What clients of a gateway see when something goes wrong inside its core process, as one table."""

import asyncio
import sys
from pathlib import Path

import grpc
import pytest

from service.models import ModelFiles
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.core import faulty_core
from tests.service.errors_of_calls import error_of
from tests.service.gateway_process import GatewayProcess

ENDLESS = {"max_tokens": 1_000_000, "ignore_eos": True}
NEIGHBOUR = pb.GenerateRequest(text="hi", sampling_params=ENDLESS)
REFUSED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""The latter is gRPC's own, for a call that comes in the moment in which the server stops listening."""
VICTIM = pb.GenerateRequest(text="hi", request_id=faulty_core.VICTIM, sampling_params=ENDLESS)


def command(fault: str) -> list[str]:
    return [sys.executable, "-m", faulty_core.__name__, "--fault", fault]


@pytest.mark.parametrize("fault", ["preprocess", "add", "encoding"])
async def test_a_fault_of_one_request_is_internal_to_it(byte_model: ModelFiles, short_folder: Path, fault: str) -> None:
    """Its neighbour goes on."""
    async with (
        GatewayProcess(byte_model, short_folder, command(fault)) as gateway,
        grpc.aio.insecure_channel(await gateway.until_ready()) as channel,
    ):
        stub = InferenceServiceStub(channel)
        neighbour = stub.GenerateStream(NEIGHBOUR)
        assert (await neighbour.read()).HasField("started")
        assert (await error_of(stub.Generate(VICTIM))).code is grpc.StatusCode.INTERNAL
        for _ in range(20):
            assert (await neighbour.read()).HasField("delta")
        neighbour.cancel()


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("step", "it reported a fatal error"),
        ("executor", "it reported a fatal error"),
        ("panic in step", "it reported a fatal error"),
        ("panic in preprocess", "it reported a fatal error"),
        ("panic in encoding", "it reported a fatal error"),
        ("abort in step", "signal 6"),
        ("abort in preprocess", "signal 6"),
    ],
)
async def test_a_fault_of_the_core_makes_all_unavailable(
    byte_model: ModelFiles, short_folder: Path, fault: str, why: str
) -> None:
    """Running calls and the next one at once; the gateway ends too, with a code of failure, and leaves nothing."""
    async with GatewayProcess(byte_model, short_folder, command(fault)) as gateway:
        async with grpc.aio.insecure_channel(await gateway.until_ready()) as channel:
            stub = InferenceServiceStub(channel)
            neighbour = stub.GenerateStream(NEIGHBOUR)
            assert (await neighbour.read()).HasField("started")
            async with asyncio.timeout(20):
                for call in (stub.Generate(VICTIM), _to_its_end(neighbour)):
                    error = await error_of(call)
                    assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "CORE_LOST")
                assert (await error_of(stub.Generate(NEIGHBOUR))).code in REFUSED
        assert await gateway.exit_code() == 1
        assert why in gateway.log
        assert gateway.leftovers() == []


async def _to_its_end(stream: grpc.aio.UnaryStreamCall) -> None:
    while await stream.read() is not grpc.aio.EOF:
        pass
