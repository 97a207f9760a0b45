"""Waves, in every order in which messages can arrive."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.data_parallel.waves import STEPS_PER_AGREEMENT, CoordinatorWave, EngineWave, combine
from core.wire.waves import MAX_WAVE, StartWave
from tests.core.data_parallel.simulation import Simulation

SIZES = [2, 4]
NUM_RACES = {2: 1000, 4: 300}


def races(num_engines: int) -> list[Simulation]:
    """Many of them, in orders and with delays of their own; nothing has happened yet."""
    return [Simulation(num_engines, seed=seed, slowness=1 + seed % 4 * 6) for seed in range(NUM_RACES[num_engines])]


@pytest.mark.parametrize("num_engines", SIZES)
def test_first_request_to_each_rank(num_engines: int) -> None:
    """The first requests of all, one to each rank at the same moment and by different front ends, are all completed."""
    for race in races(num_engines):
        for engine in race.engines:
            race.front_ends[engine.index % 2].add(engine, f"r{engine.index}", num_steps=1 + engine.index)
        race.run()
        race.check_at_rest()


@pytest.mark.parametrize("num_engines", SIZES)
def test_request_at_the_end_of_a_wave(num_engines: int) -> None:
    """A request that arrives as the wave ends, before or after its front end hears of the end, is completed."""
    for race in races(num_engines):
        race.front_ends[0].add(race.engines[0], "first", num_steps=1)
        while "first" not in race.finished:
            race.run(max_acts=1)
        race.run(max_acts=race.random.randrange(10 * num_engines))
        race.front_ends[1].add(race.engines[-1], "second", num_steps=3)
        race.run()
        race.check_at_rest()


@pytest.mark.parametrize("num_engines", SIZES)
def test_request_while_paused_then_resume(num_engines: int) -> None:
    """A request that comes at any moment of a pause waits for the resume, then is completed; so is what ran before."""
    for race in races(num_engines):
        other = race.front_ends[1]
        other.add(race.engines[0], "before", num_steps=race.random.randrange(1, 40))
        race.run(max_acts=race.random.randrange(40))
        pause_all(race, race.random.choice(["keep", "wait"]))
        other.add(race.engines[-1], "meanwhile", num_steps=2)
        race.run()
        assert race.answered == {(engine.index, 0) for engine in race.engines}
        resume_all(race)
        race.run()
        race.check_at_rest()


def resume_all(race: Simulation) -> None:
    for engine in race.engines:
        race.front_ends[0].tell(engine, engine.resume_scheduler)


def pause_all(race: Simulation, mode: str, call_id: int = 0) -> None:
    for engine in race.engines:
        race.front_ends[0].tell(engine, lambda engine=engine: engine.pause_scheduler(mode, call_id))  # type: ignore[misc]


def test_refused_or_aborted_first_request() -> None:
    """A request that wakes the group and is gone by the time it runs leaves nobody waiting."""
    for race in races(2):
        race.front_ends[0].add(race.engines[1], "refused", num_steps=0)
        race.front_ends[1].add(race.engines[0], "aborted", num_steps=5)
        race.front_ends[1].tell(race.engines[0], lambda race=race: race.engines[0].abort("aborted"))  # type: ignore[misc]
        race.run()
        race.check_at_rest()


ADDS = st.tuples(st.just("add"), st.integers(0, 1), st.integers(0, 3), st.integers(0, 40), st.just(None))
WAVES = st.one_of(st.integers(0, 9), st.sampled_from([MAX_WAVE, MAX_WAVE + 1, 2**64]))
WRONG_ADDS = st.tuples(st.just("add"), st.integers(0, 1), st.integers(0, 3), st.integers(0, 5), WAVES)
OPERATIONS = st.one_of(
    ADDS,
    ADDS,
    WRONG_ADDS,
    st.tuples(st.just("abort"), st.integers(0, 1), st.integers(0, 3), st.integers(0, 20)),
    st.tuples(st.just("pause"), st.sampled_from(["abort", "wait", "keep"])),
    st.tuples(st.just("pause one"), st.integers(0, 3), st.sampled_from(["abort", "wait", "keep"])),
    st.tuples(st.just("resume"), st.none()),
    st.tuples(st.just("resume one"), st.integers(0, 3)),
    st.tuples(st.just("go on"), st.integers(0, 200)),
)


ABORTED_FROM_THE_FUTURE = [("add", 0, 0, 0, None), ("go on", 4), ("add", 1, 1, 1, 1), ("pause", "abort")]
"""The other rank runs for a request whose front end is ahead; before its own rank runs, the request is gone."""


@settings(deadline=None, max_examples=200)
@example(2, ABORTED_FROM_THE_FUTURE, 2, 1)
@given(st.sampled_from(SIZES), st.lists(OPERATIONS, max_size=12), st.integers(0, 2**32), st.sampled_from([1, 10, 100]))
def test_any_history(num_engines: int, operations: list[Any], seed: int, slowness: int) -> None:
    """Whatever front ends do, in whatever order it arrives: nothing is lost, nobody waits for ever, all come to rest.

    Pauses and resumes that reach some ranks only are part of it, and waves that no front end can have heard of.
    """
    race = Simulation(num_engines, seed=seed, slowness=slowness)
    for number, operation in enumerate(operations):
        perform(race, number, *operation)
    resume_all(race)
    race.run()
    race.check_at_rest()


def perform(race: Simulation, number: int, name: str, *values: Any) -> None:
    """One operation; engines beyond the last stand for the last."""
    control, engines = race.front_ends[0], [*race.engines, *[race.engines[-1]] * 4]
    match name, *values:
        case "add", front_end, engine, num_steps, wave:
            race.front_ends[front_end].add(engines[engine], f"r{number}", num_steps, wave)
        case "abort", front_end, engine, request:
            race.front_ends[front_end].tell(engines[engine], lambda: engines[engine].abort(f"r{request}"))
        case "pause", mode:
            pause_all(race, mode, number)
        case "pause one", engine, mode:
            control.tell(engines[engine], lambda: engines[engine].pause_scheduler(mode, number))
        case "resume", _:
            resume_all(race)
        case "resume one", engine:
            control.tell(engines[engine], engines[engine].resume_scheduler)
        case _, num_acts:
            race.run(num_acts)


def test_ranks_without_work_step_too() -> None:
    """While one rank has work, the others step on dummy batches: all of them as often."""
    race = Simulation(4, steps_per_agreement=32)
    race.front_ends[0].add(race.engines[2], "r", num_steps=100)
    race.run()
    dummies = [engine.num_dummies for engine in race.engines]
    assert dummies == [128, 128, 28, 128]


def test_late_start() -> None:
    """A START of a wave that is over wakes nobody."""
    wave = EngineWave()
    wave.take_start(0)
    assert wave.settle(wave.vote(is_busy=False, awaits_pause=False, is_idle=False)) == 0
    wave.take_start(0)
    assert not wave.is_running
    wave.take_start(1)
    assert wave.is_running


def test_agreement_every_32nd_step() -> None:
    """Counted from the beginning of the wave."""
    wave = EngineWave()
    assert [step for step in range(1, 100) if wave.end_step()] == [32, 64, 96]
    assert STEPS_PER_AGREEMENT == 32


def test_the_highest_wave_spreads() -> None:
    """Ranks that disagree about the wave agree on the highest, and complete that one."""
    waves = [EngineWave(), EngineWave()]
    waves[1].take_request(7)
    agreed = combine([wave.vote(is_busy=False, awaits_pause=False, is_idle=False) for wave in waves])
    assert [wave.settle(agreed) for wave in waves] == [7, 7]


def test_wave_that_cannot_be() -> None:
    """A front end cannot make an engine count beyond what a message can hold."""
    wave = EngineWave()
    wave.take_request(MAX_WAVE + 1)
    assert wave.number == 0


def test_coordinator_first_request() -> None:
    """START goes to all but the engine that has the request; to all if the front end was behind."""
    coordinator = CoordinatorWave()
    assert coordinator.take_first_request(1, 0) == StartWave(0, 1)
    assert coordinator.take_first_request(0, 0) is None
    coordinator.take_complete(0)
    assert (coordinator.number, coordinator.is_running) == (1, False)
    assert coordinator.take_first_request(1, 0) == StartWave(1, None)


def test_coordinator_start_wave() -> None:
    """An engine that begins to run wakes the others, whatever the coordinator believed of them."""
    coordinator = CoordinatorWave()
    assert coordinator.take_start(0, 3) == StartWave(3, 0)
    assert coordinator.take_start(1, 3) == StartWave(3, 1)
    assert coordinator.take_start(1, 2) == StartWave(3, None)
    coordinator.take_complete(2)
    assert (coordinator.number, coordinator.is_running) == (3, True)
