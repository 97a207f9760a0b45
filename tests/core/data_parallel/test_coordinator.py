"""The coordinator on real sockets, with engines and front ends played by the test."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from core.wire.messages import EngineCoreOutputs, RequestType
from core.wire.stats import SchedulerStats
from core.wire.waves import COORDINATOR_READY, MAX_WAVE, SUBSCRIBE, CoordinatorState, StartWave
from tests.core.data_parallel.ranks import CoordinatorThread, Listener
from tests.core.front_end import PATIENCE_S


class PlayedEngine:
    """An engine's two sockets."""

    def __init__(self, coordinator: CoordinatorThread, index: int) -> None:
        self._context = zmq.Context()
        self._index = index
        self.input = self._context.socket(zmq.XSUB)
        self.output = self._context.socket(zmq.PUSH)
        self.input.rcvtimeo = PATIENCE_S * 1000
        self.input.connect(coordinator.addresses.coordinator_input)
        self.output.connect(coordinator.addresses.coordinator_output)
        self.input.send(SUBSCRIBE)

    def report(self, **fields: Any) -> None:
        self.output.send(msgspec.msgpack.encode(EngineCoreOutputs(engine_index=self._index, **fields)))

    def receive_start(self) -> StartWave:
        request_type, payload = self.input.recv_multipart()
        assert request_type == RequestType.START_DP_WAVE.value
        return msgspec.msgpack.decode(payload, type=StartWave)

    def close(self) -> None:
        self._context.destroy(linger=0)


class Play:
    """A coordinator among two engines and a front end, who have come."""

    def __init__(self, folder: Path) -> None:
        self.coordinator = CoordinatorThread(folder, num_engines=2)
        self.engines = [PlayedEngine(self.coordinator, index) for index in range(2)]
        self.front_end = Listener(self.coordinator.addresses.frontend_stats_publish_address)
        for engine in self.engines:
            assert engine.input.recv() == COORDINATOR_READY
        assert self.front_end.receive() == CoordinatorState([[0, 0], [0, 0]], 0, running=False)

    def close(self) -> None:
        for closing in (*self.engines, self.front_end, self.coordinator):
            closing.close()


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    play = Play(tmp_path)
    yield play
    play.close()


def test_first_request(play: Play) -> None:
    """A front end's first request starts the wave, the engine that has the request excluded by its rank."""
    play.front_end.send_first_request(b"\x01\x00", 0)
    assert [engine.receive_start() for engine in play.engines] == [StartWave(0, 1)] * 2
    assert play.front_end.receive() == CoordinatorState(None, 0, running=True)


def test_complete_and_again(play: Play) -> None:
    """The end of a wave, and an engine that begins the next, are told to the front ends at once, without counts."""
    play.engines[0].report(start_wave=0)
    assert play.front_end.receive() == CoordinatorState(None, 0, running=True)
    play.engines[0].report(wave_complete=0)
    assert play.front_end.receive() == CoordinatorState(None, 1, running=False)
    play.engines[1].report(start_wave=1)
    assert play.front_end.receive() == CoordinatorState(None, 1, running=True)
    assert [play.engines[0].receive_start() for _ in range(2)] == [StartWave(0, 0), StartWave(1, 1)]


def test_counts(play: Play) -> None:
    """What the engines report reaches the front ends, [waiting, running] of each."""
    play.engines[1].report(scheduler_stats=SchedulerStats(num_running_reqs=3, num_waiting_reqs=2, step_counter=1))
    assert play.front_end.receive() == CoordinatorState([[0, 0], [2, 3]], 0, running=False)


def test_first_request_before_all_engines_have_come(tmp_path: Path) -> None:
    """READY comes first, and no engine misses the START."""
    coordinator = CoordinatorThread(tmp_path, num_engines=2)
    early = PlayedEngine(coordinator, 0)
    front_end = Listener(coordinator.addresses.frontend_stats_publish_address)
    front_end.receive()
    front_end.send_first_request(b"\x00\x00", 0)
    assert front_end.receive() == CoordinatorState(None, 0, running=True)
    late = PlayedEngine(coordinator, 1)
    for engine in (early, late):
        assert engine.input.recv() == COORDINATOR_READY
        assert engine.receive_start() == StartWave(0)
    for closing in (early, late, front_end, coordinator):
        closing.close()


def test_who_comes_later(play: Play) -> None:
    """An engine that comes back hears READY, a front end that comes later the state, without waiting for news."""
    engine = PlayedEngine(play.coordinator, 0)
    assert engine.input.recv() == COORDINATOR_READY
    engine.close()
    later = Listener(play.coordinator.addresses.frontend_stats_publish_address)
    assert later.receive() == CoordinatorState([[0, 0], [0, 0]], 0, running=False)
    later.close()


def test_messages_that_mean_nothing(play: Play) -> None:
    """Nothing that arrives ends it, or moves the wave."""
    for message in (b"", b"\xc1", b"nonsense", msgspec.msgpack.encode(["SCALE_ELASTIC_EP", 4])):
        play.front_end.send(message)
        play.engines[0].output.send(message)
    play.front_end.send_first_request(b"\x00\x00", 2**64 - 1)
    play.front_end.send_first_request(b"far too long", 0)
    for wave in (-1, 2 * MAX_WAVE + 1, 2**64 - 1):
        play.engines[0].report(start_wave=wave)
        play.engines[0].report(wave_complete=wave)
    play.engines[0].output.send(msgspec.msgpack.encode(EngineCoreOutputs(engine_index=2, start_wave=0)))
    play.engines[0].report(wave_complete=6)
    assert play.front_end.receive() == CoordinatorState(None, 7, running=False)
