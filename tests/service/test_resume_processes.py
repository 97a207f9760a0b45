"""Cores that are killed, stopped and replaced under a gateway process: what its clients see."""

import asyncio
import signal
import sys
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2

from service.models import ModelFiles
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.core import faulty_core
from tests.service.errors_of_calls import error_of
from tests.service.gateway_process import PACED_CORE, GatewayProcess
from tests.service.metrics.scrape import scrape_async
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
        metrics = await scrape_async((await gateway.until_logged("metrics on http://(.*)/metrics")).group(1))
        counts = {name: metrics.value(f"sluicegate:{name}_total") for name in ("cores_lost", "core_restarts")}
        assert counts == {"cores_lost": 2, "core_restarts": 2}
        assert metrics.value("sluicegate:resumed_requests_total") == 4 + 5
        assert metrics.value("sluicegate:unresumable_requests_total") == 0
        assert metrics.value("sluicegate:last_interruption_seconds") > 0


@pytest.mark.parametrize("num_workers", [1, 2])
async def test_the_end_of_the_gateway_is_no_loss(byte_model: ModelFiles, short_folder: Path, num_workers: int) -> None:
    """A start, a request and a signal are nothing to warn of."""
    async with GatewayProcess(byte_model, short_folder, max_restarts=3, num_workers=num_workers) as gateway:
        async with stubs_of(gateway) as stubs:
            assert len(await Reader(stubs.inference, 3).to_the_end()) == 3
        gateway.send_signal(signal.SIGTERM)
        assert await gateway.exit_code() == 0
        assert not [line for line in gateway.log.splitlines() if "WARNING" in line or "ERROR" in line]


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


async def test_a_core_that_is_asked_to_end(byte_model: ModelFiles, short_folder: Path) -> None:
    """By an operator, alone: what it may not finish goes on in the next."""
    async with GatewayProcess(byte_model, short_folder, max_restarts=3) as gateway, stubs_of(gateway) as stubs:
        reader = await Reader(stubs.inference).begin()
        gateway.core().terminate()
        async with asyncio.timeout(60):
            assert await reader.to_the_end() == EXPECTED
            assert await Reader(stubs.inference).to_the_end() == EXPECTED


async def test_a_stuck_core(byte_model: ModelFiles, short_folder: Path) -> None:
    """One that says nothing for too long is killed, and its streams go on; one that goes on in time is left alone."""
    terms = {"max_restarts": 3, "ping_timeout_s": 0.5, "stuck_timeout_s": 2}
    async with GatewayProcess(byte_model, short_folder, **terms) as gateway, stubs_of(gateway) as stubs:
        watch = stubs.health.Watch(health_pb2.HealthCheckRequest(service="readiness"))
        reader = await Reader(stubs.inference).begin()
        core = gateway.core()
        core.suspend()
        async with asyncio.timeout(60):
            while (await watch.read()).status != NOT_SERVING:
                pass
            core.resume()
            while (await watch.read()).status != SERVING:
                pass
            core.suspend()
            assert await reader.to_the_end() == EXPECTED
        assert not core.is_running()
        assert gateway.log.count("it is stuck") == 1


async def test_one_of_two_cores(byte_model: ModelFiles, short_folder: Path) -> None:
    """The other takes over at once, and the server stays ready; what may run on the lost one alone waits for it."""
    terms = {"max_restarts": 3, "data_parallel_size": 2}
    async with GatewayProcess(byte_model, short_folder, **terms) as gateway, stubs_of(gateway) as stubs:
        pinned = [await Reader(stubs.inference, rank=rank).begin() for rank in (0, 1)]
        readers = [await Reader(stubs.inference).begin() for _ in range(4)]
        gateway.cores()[0].kill()
        async with asyncio.timeout(60):
            texts = await asyncio.gather(*(reader.to_the_end() for reader in (*pinned, *readers)))
            assert texts == [EXPECTED] * 6
            assert await stubs.status_of("readiness") == SERVING
            assert await Reader(stubs.inference, rank=0).to_the_end() == EXPECTED


async def test_cores_that_end_while_they_load(byte_model: ModelFiles, short_folder: Path) -> None:
    """One that does is followed by another, after a while; when there have been too many, the stream ends."""
    flag = short_folder / "flag"
    fails = f"import os, sys; os.path.exists({str(flag)!r}) and sys.exit('Error: no memory')"
    command = [sys.executable, "-c", f"{fails}; from bench.null_core import main; main()", *PACED_CORE[3:]]
    folder = short_folder / "tmp"
    folder.mkdir()
    async with GatewayProcess(byte_model, folder, command, max_restarts=3) as gateway, stubs_of(gateway) as stubs:
        reader = await Reader(stubs.inference).begin()
        flag.touch()
        gateway.core().kill()
        await gateway.until_logged("no memory, before it was ready; another is started")
        flag.unlink()
        async with asyncio.timeout(60):
            assert await reader.to_the_end() == EXPECTED
        reader = await Reader(stubs.inference, 1_000_000).begin()
        flag.touch()
        gateway.core().kill()
        async with asyncio.timeout(60):
            error = await error_of(reader.to_the_end())
        assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "CORE_LOST")
        assert await gateway.exit_code() == 1
        assert gateway.leftovers() == []


@pytest.mark.parametrize("drain_timeout_s", [60, 0.1], ids=["long enough", "too short"])
async def test_a_drain_while_a_core_is_replaced(
    byte_model: ModelFiles, short_folder: Path, drain_timeout_s: float
) -> None:
    """Streams go on in the next core and end as they would have, or are aborted when the time is up. Exit code 0."""
    terms = {"max_restarts": 3, "drain_timeout_s": drain_timeout_s}
    async with GatewayProcess(byte_model, short_folder, **terms) as gateway, stubs_of(gateway) as stubs:
        reader = await Reader(stubs.inference).begin()
        gateway.core().kill()
        await gateway.until_logged("another is started")
        gateway.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            if drain_timeout_s > 1:
                assert await reader.to_the_end() == EXPECTED
            else:
                while await reader.read():
                    pass
                assert reader.finished.finish_reason == pb.FINISH_REASON_ABORT
        assert await gateway.exit_code() == 0
        assert gateway.leftovers() == []


async def test_one_request_that_ends_every_core(byte_model: ModelFiles, short_folder: Path) -> None:
    """It ends with an error that no client tries again; 31 neighbours are as if it had never been."""
    command = [sys.executable, "-m", faulty_core.__name__, "--fault", "abort in step"]
    async with GatewayProcess(byte_model, short_folder, command, max_restarts=8) as gateway, stubs_of(gateway) as stubs:
        request = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 40, "ignore_eos": True})
        neighbours = [stubs.inference.Generate(request) for _ in range(31)]
        victim = pb.GenerateRequest(text="hi", request_id=faulty_core.VICTIM, sampling_params={"max_tokens": 9})
        async with asyncio.timeout(120):
            error = await error_of(stubs.inference.Generate(victim))
            assert (error.code, error.reason) == (grpc.StatusCode.INTERNAL, "ENDS_THE_CORE")
            answers = await asyncio.gather(*neighbours)
        assert {answer.usage.num_output_tokens for answer in answers} == {40}
