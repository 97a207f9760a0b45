"""What the gateway knows of waves, and what it tells the coordinator and the cores of them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
import zmq
import zmq.asyncio

from core.wire.messages import EngineCoreOutputs, EngineCoreRequest, RequestType
from core.wire.sampling_params import SamplingParams
from core.wire.waves import COORDINATOR_READY, SUBSCRIBE, CoordinatorAddresses, CoordinatorState, StartWave
from service.cores.engines import Engines
from service.cores.wave_client import WaveClient
from service.engine_client import EngineClient
from tests.core.data_parallel.ranks import CoordinatorThread
from tests.service.fake_core import FakeCore


class EngineEnd:
    """What an engine is for the coordinator."""

    def __init__(self, addresses: CoordinatorAddresses) -> None:
        self._context = zmq.asyncio.Context()
        self._from_coordinator = self._context.socket(zmq.XSUB)
        self._from_coordinator.connect(addresses.coordinator_input)
        self._to_coordinator = self._context.socket(zmq.PUSH)
        self._to_coordinator.connect(addresses.coordinator_output)

    async def subscribe(self) -> None:
        await self._from_coordinator.send(SUBSCRIBE)
        assert await self._from_coordinator.recv() == COORDINATOR_READY

    async def receive_start(self) -> StartWave:
        async with asyncio.timeout(10):
            kind, start = await self._from_coordinator.recv_multipart()
        assert kind == RequestType.START_DP_WAVE.value
        return msgspec.msgpack.decode(start, type=StartWave)

    async def complete(self, wave: int) -> None:
        await self._to_coordinator.send(msgspec.msgpack.encode(EngineCoreOutputs(wave_complete=wave)))

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[CoordinatorThread]:
    thread = CoordinatorThread(tmp_path, num_engines=1)
    yield thread
    thread.close()


@pytest.fixture
async def engine_end(coordinator: CoordinatorThread) -> AsyncIterator[EngineEnd]:
    end = EngineEnd(coordinator.addresses)
    await end.subscribe()
    yield end
    end.close()


@pytest.fixture
async def waves(coordinator: CoordinatorThread) -> AsyncIterator[WaveClient]:
    client = WaveClient(coordinator.addresses.frontend_stats_publish_address)
    yield client
    client.close()


async def until_state(waves: WaveClient, state: str) -> None:
    async with asyncio.timeout(10):
        for _ in iter(lambda: repr(waves), f"WaveClient({state})"):
            await asyncio.sleep(0)


async def test_waves_come_and_go(waves: WaveClient, engine_end: EngineEnd) -> None:
    """The first request of a wave wakes the cores, others do not; the state follows the coordinator's."""
    for wave in range(3):
        await until_state(waves, f"{wave}, at rest")
        for _ in range(3):
            waves.note_request(b"\0\0")
        assert await engine_end.receive_start() == StartWave(wave, 0)
        assert waves.is_running
        await engine_end.complete(wave)


async def test_a_request_says_its_wave(waves: WaveClient, engine_end: EngineEnd, tmp_path: Path) -> None:
    """ADD has the current wave, and the cores are woken, whichever core it goes to."""
    await engine_end.complete(6)
    await until_state(waves, "7, at rest")
    (tmp_path / "cores").mkdir()
    engines = Engines(f"ipc://{tmp_path}/cores/in", f"ipc://{tmp_path}/cores/out")
    client = EngineClient(engines, waves)
    async with FakeCore() as core:
        core.connect(engines.addresses)
        await asyncio.wait_for(engines.ready, 10)
        client.add([EngineCoreRequest("r", [1], None, SamplingParams(), None, 0.0, None, None, None)])
        assert (await core.receive_add()).current_wave == 7
        assert await engine_end.receive_start() == StartWave(7, 0)
    engines.close()


async def test_a_state_that_does_not_decode(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged and passed over."""
    context = zmq.asyncio.Context()
    coordinator = context.socket(zmq.XPUB)
    coordinator.bind(f"ipc://{tmp_path}/coordinator")
    waves = WaveClient(f"ipc://{tmp_path}/coordinator")
    assert await coordinator.recv() == SUBSCRIBE
    await coordinator.send(b"\xc1")
    await coordinator.send(msgspec.msgpack.encode(CoordinatorState([[0, 0]], 3, True)))
    await until_state(waves, "3, running")
    assert "the coordinator's message was dropped" in caplog.text
    waves.close()
    context.destroy(linger=0)
