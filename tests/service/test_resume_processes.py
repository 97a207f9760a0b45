"""Cores that are killed, stopped and replaced under a gateway process: what its clients see."""

import asyncio
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2

from service.models import ModelFiles
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.errors_of_calls import error_of
from tests.service.gateway_process import GatewayProcess
from tests.service.test_supervisor import NOT_SERVING, SERVING, stubs_of
from tests.service.workers.test_team import stub_in_each

NUM_TOKENS = 300
EXPECTED = ("cab" * NUM_TOKENS)[:NUM_TOKENS]
"""The token at a position depends on the position alone, see ``bench.null_engine``."""


class Reader:
    """A stream and the text it has given."""

    def __init__(self, stub: InferenceServiceStub, num_tokens: int = NUM_TOKENS, rank: int | None = None) -> None:
        params = {"max_tokens": num_tokens, "ignore_eos": True}
        request = pb.GenerateRequest(text="hi", sampling_params=params, data_parallel_rank=rank)
        self._stream = stub.GenerateStream(request)
        self.text = ""
        self.num_started = 0
        self.finished = pb.Finished()

    async def read(self) -> bool:
        """Take one event; whether it was not the last."""
        event = await self._stream.read()
        self.text += event.delta.text
        self.num_started += event.HasField("started")
        self.finished = event.finished
        return not event.HasField("finished")

    async def begin(self) -> "Reader":
        """Return once there is text."""
        while not self.text:
            assert await self.read()
        return self

    async def to_the_end(self) -> str:
        """All of the text of a stream that ends as it should."""
        while await self.read():
            pass
        assert self.finished.finish_reason == pb.FINISH_REASON_LENGTH
        assert self.finished.usage.num_output_tokens == len(self.text)
        assert self.num_started == 1
        return self.text


async def test_killed_cores_lose_no_stream(byte_model: ModelFiles, short_folder: Path) -> None:
    """Each stream goes on with the core that comes next, as if nothing had happened; calls meanwhile wait."""
    async with GatewayProcess(byte_model, short_folder, max_restarts=3) as gateway, stubs_of(gateway) as stubs:
        watch = stubs.health.Watch(health_pb2.HealthCheckRequest(service="readiness"))
        assert (await watch.read()).status == SERVING
        readers = [await Reader(stubs.inference).begin() for _ in range(4)]
        for _ in range(2):
            gateway.core().kill()
            async with asyncio.timeout(30):
                assert (await watch.read()).status == NOT_SERVING
                assert await stubs.status_of("liveness") == SERVING
                readers.append(await Reader(stubs.inference).begin())
                assert (await watch.read()).status == SERVING
        async with asyncio.timeout(60):
            texts = await asyncio.gather(*(reader.to_the_end() for reader in readers))
        assert texts == [EXPECTED] * 6
        assert "signal 9" in gateway.log


async def test_every_process_of_the_gateway_goes_on(byte_model: ModelFiles, short_folder: Path) -> None:
    """A worker hears of the loss and of the core that comes as the primary does."""
    async with GatewayProcess(byte_model, short_folder, max_restarts=3, num_workers=2) as gateway:
        async with stub_in_each(gateway) as stubs:
            readers = [await Reader(stub).begin() for stub in stubs]
            gateway.cores()[0].kill()
            readers += [Reader(stub) for stub in stubs]
            async with asyncio.timeout(60):
                texts = await asyncio.gather(*(reader.to_the_end() for reader in readers))
        assert texts == [EXPECTED] * 4


async def test_the_last_core_that_may_be_started(byte_model: ModelFiles, short_folder: Path) -> None:
    """When it dies too, streams in all processes end, and so does the gateway: whoever watches over it can do more."""
    async with GatewayProcess(byte_model, short_folder, max_restarts=1, num_workers=2) as gateway:
        async with stub_in_each(gateway) as stubs:
            readers = [await Reader(stub, 1_000_000).begin() for stub in stubs]
            gateway.cores()[0].kill()
            await gateway.until_logged("serves again")
            gateway.cores()[-1].kill()
            async with asyncio.timeout(30):
                for reader in readers:
                    error = await error_of(reader.to_the_end())
                    assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "CORE_LOST")
                    assert "1 restarts within 10 minutes have not helped" in error.message
        assert await gateway.exit_code() == 1
        assert gateway.leftovers() == []
