"""HAProxy and nginx pass calls on as they are; what they know of health is in docs/load-balancing.md."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from service.models import ModelFiles
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from sluicegate_client import AsyncClient, InvalidRequestError
from tests.deploy.rolling_restart.other_proxies import haproxying, nginxing
from tests.deploy.rolling_restart.replicas import Replicas

ENDLESS = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 1_000_000, "ignore_eos": True})
_3_MIB = "x" * (3 << 20)


async def test_calls_pass(byte_model: ModelFiles, tmp_path: Path) -> None:
    """Token by token, many on one connection, of any size that the servers take, errors with their details."""
    with tempfile.TemporaryDirectory(prefix="sg") as folder:
        async with Replicas(byte_model, Path(folder), 0) as replicas:
            with haproxying(replicas.addresses, tmp_path) as haproxy, nginxing(replicas.addresses, tmp_path) as nginx:
                for address in (haproxy, nginx):
                    async with AsyncClient(address) as client:
                        await client.wait_until_ready()
                        await _streams_and_errors(client)
                    async with grpc.aio.insecure_channel(address) as channel:
                        await _many_streams(InferenceServiceStub(channel))
                        await _many_large_messages(InferenceServiceStub(channel))


async def _streams_and_errors(client: AsyncClient) -> None:
    """More than one token to a message only where several have come."""
    deltas = [delta async for delta in client.stream("hi", max_tokens=20, ignore_eos=True)]
    assert len(deltas) > 10
    whole = await client.generate("hi", max_tokens=20, ignore_eos=True)
    assert "".join(delta.text for delta in deltas) == whole.outputs[0].text
    with pytest.raises(InvalidRequestError) as raised:
        await client.generate("hi", temperature=3)
    assert [violation.field for violation in raised.value.violations] == ["sampling_params.temperature"]


async def _many_streams(stub: InferenceServiceStub) -> None:
    """None waits for another to end."""
    streams = [stub.GenerateStream(ENDLESS, timeout=60) for _ in range(200)]
    assert all(event.HasField("started") for event in await asyncio.gather(*(stream.read() for stream in streams)))
    for stream in streams:
        stream.cancel()


async def _many_large_messages(stub: InferenceServiceStub) -> None:
    """Of one call; together they are larger than a message may be. Each is refused for what it is."""

    async def requests() -> AsyncIterator[pb.MultiplexedRequest]:
        for number in range(6):
            yield pb.MultiplexedRequest(generate=pb.GenerateRequest(request_id=str(number), text=_3_MIB))

    answers = [answer async for answer in stub.GenerateMultiplexed(requests())]
    assert sum(len(answer.errors) for answer in answers) == 6
