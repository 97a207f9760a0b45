"""Engines, their coordinator and front ends without threads: whoever may act next is drawn, so every order can come.

    front ends ──▶ engines: requests, aborts, pauses       every arrow between two parties is a queue of its own;
    front ends ◀─▶ coordinator ◀─▶ engines                 what is in it is taken at any later time, in its order

An engine does what LockstepLoop does, with a counter in place of each request.
"""

import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from core.data_parallel.waves import CoordinatorWave, EngineWave, Votes, combine
from core.wire.waves import StartWave

Act = Callable[[], None]


@dataclass
class SimRequest:
    """``num_steps``: how many it takes; 0: the engine refuses it."""

    num_steps: int
    has_begun: bool = False


@dataclass
class SimEngine:
    """A rank: an engine and its busy loop."""

    index: int
    simulation: "Simulation"
    wave: EngineWave
    requests: dict[str, SimRequest] = field(default_factory=dict)
    pause: str | None = None
    unanswered: list[int] = field(default_factory=list)
    vote: Votes | None = None
    num_dummies: int = 0

    @property
    def runnable(self) -> list[str]:
        if self.pause == "keep":
            return []
        return [name for name, request in self.requests.items() if request.has_begun or self.pause is None]

    @property
    def may_step(self) -> bool:
        return self.vote is None and bool(self.wave.is_running or self.runnable or self.unanswered)

    def add(self, request_id: str, num_steps: int, wave: int) -> None:
        if num_steps:
            self.requests[request_id] = SimRequest(num_steps)
            self.wave.take_request(wave)
        else:
            self.simulation.finished.add(request_id)

    def abort(self, request_id: str) -> None:
        if self.requests.pop(request_id, None):
            self.simulation.finished.add(request_id)

    def pause_scheduler(self, mode: str, call_id: int) -> None:
        self.pause = mode
        self.unanswered.append(call_id)
        if mode == "abort":
            self.simulation.finished |= set(self.requests)
            self.requests.clear()

    def resume_scheduler(self) -> None:
        self.pause = None
        self._answer()

    def step(self) -> None:
        has_work = self.runnable or self.unanswered
        if has_work and (wave := self.wave.begin_own_work()) is not None:
            self.simulation.send(("engine", self.index), "coordinator", self._tell_start(wave))
        if self.wave.is_running:
            self._compute()
            if self.wave.end_step():
                is_busy, awaits_pause = bool(self.runnable), bool(self.unanswered) and not self.runnable
                self.vote = self.wave.vote(is_busy, awaits_pause, self.pause is not None and not is_busy)

    def settle(self, agreed: Votes) -> None:
        self.vote = None
        complete = self.wave.settle(agreed)
        if not agreed.is_not_idle:
            self.simulation.check_all_idle()
            self._answer()
        if complete is not None and self.index == 0:
            coordinator = self.simulation.coordinator
            self.simulation.send(("engine", 0), "coordinator", lambda: coordinator.take_complete(complete))

    def _compute(self) -> None:
        self.num_dummies += not self.runnable
        for request_id in self.runnable:
            request = self.requests[request_id]
            request.has_begun = True
            request.num_steps -= 1
            if request.num_steps == 0:
                self.abort(request_id)

    def _answer(self) -> None:
        self.simulation.answered |= {(self.index, call_id) for call_id in self.unanswered}
        self.unanswered.clear()

    def _tell_start(self, wave: int) -> Act:
        return lambda: self.simulation.start(self.simulation.coordinator.take_start(self.index, wave))


@dataclass
class SimFrontEnd:
    """What it believes of the wave, as the coordinator last told it."""

    index: int
    simulation: "Simulation"
    wave: int = 0
    running: bool = False

    def add(self, engine: SimEngine, request_id: str, num_steps: int, wave: int | None = None) -> None:
        """``wave``: what it says in place of what it believes."""
        simulation, said = self.simulation, self.wave if wave is None else wave
        simulation.sent.add(request_id)
        me = ("front end", self.index)
        simulation.send(me, ("engine", engine.index), lambda: engine.add(request_id, num_steps, said))
        if not self.running:
            self.running = True
            take = simulation.coordinator.take_first_request
            simulation.send(me, "coordinator", lambda: simulation.start(take(engine.index, said)))

    def tell(self, engine: SimEngine, act: Act) -> None:
        self.simulation.send(("front end", self.index), ("engine", engine.index), act)

    def hear(self, wave: int, running: bool) -> None:
        self.wave, self.running = wave, running


class Simulation:
    """``run`` until everything is at rest.

    ``slowness``: how many times more seldom the slow queues, half of them, are taken from. Agreements come more often
    than they do, so that a race is over sooner.
    """

    def __init__(
        self, num_engines: int, seed: int = 0, slowness: int = 1, num_front_ends: int = 2, steps_per_agreement: int = 4
    ) -> None:
        self.random = random.Random(seed)
        self.coordinator = CoordinatorWave()
        self.engines = [SimEngine(index, self, EngineWave(steps_per_agreement)) for index in range(num_engines)]
        self.front_ends = [SimFrontEnd(index, self) for index in range(num_front_ends)]
        self.sent: set[str] = set()
        self.finished: set[str] = set()
        self.answered: set[tuple[int, int]] = set()
        self._slowness = slowness
        self._queues: dict[object, deque[Act]] = defaultdict(deque)
        self._weights: dict[object, float] = {}

    def send(self, sender: object, receiver: object, act: Act) -> None:
        self._queues[sender, receiver].append(act)

    def start(self, start: StartWave | None) -> None:
        """The coordinator has decided so."""
        if start is not None:
            for engine in self.engines:
                self.send("coordinator", ("engine", engine.index), self._take_start(engine, start.wave))

    def run(self, max_acts: int | None = None) -> None:
        """Let ``max_acts`` happen; None: until nobody has anything to do."""
        num_acts = 0
        while (max_acts is None or num_acts < max_acts) and (acts := list(self._possible_acts())):
            weights = [weight for _, weight in acts]
            (act,) = self.random.choices([act for act, _ in acts], weights)
            act()
            num_acts += 1
            assert num_acts < 200_000, f"never at rest: {self.engines}"

    def check_all_idle(self) -> None:
        """All ranks have agreed that they are paused, with nothing to run."""
        assert all(engine.pause and not engine.runnable for engine in self.engines)

    def check_at_rest(self) -> None:
        """Nothing is lost, nobody waits, and everybody knows that it is over."""
        assert self.sent == self.finished, f"lost: {self.sent - self.finished} {self.engines} {self.coordinator}"
        assert not any(engine.vote or engine.unanswered or engine.wave.is_running for engine in self.engines)
        waves = {engine.wave.number for engine in self.engines} | {self.coordinator.number}
        assert len(waves) == 1, f"{self.engines}, {self.coordinator.number}"
        assert not self.coordinator.is_running

    def _possible_acts(self) -> Iterator[tuple[Act, float]]:
        for key, queue in self._queues.items():
            if queue and self._may_take(key):
                yield self._taking(queue), self._weight(key)
        for engine in self.engines:
            if engine.may_step:
                yield engine.step, 1.0
        if all(engine.vote for engine in self.engines):
            yield self._agree, 1.0

    def _may_take(self, key: object) -> bool:
        """Nobody takes anything while it waits for the other ranks."""
        return not any(key[1] == ("engine", engine.index) and engine.vote for engine in self.engines)  # type: ignore[index]

    def _weight(self, key: object) -> float:
        if key not in self._weights:
            self._weights[key] = self.random.choice([1.0, 1.0 / self._slowness])
        return self._weights[key]

    def _taking(self, queue: deque[Act]) -> Act:
        def take() -> None:
            before = self.coordinator.number, self.coordinator.is_running
            queue.popleft()()
            if before != (self.coordinator.number, self.coordinator.is_running):
                self._publish()

        return take

    def _publish(self) -> None:
        for front_end in self.front_ends:
            self.send("coordinator", ("front end", front_end.index), self._hear(front_end))

    def _hear(self, front_end: SimFrontEnd) -> Act:
        wave, running = self.coordinator.number, self.coordinator.is_running
        return lambda: front_end.hear(wave, running)

    def _take_start(self, engine: SimEngine, wave: int) -> Act:
        return lambda: engine.wave.take_start(wave)

    def _agree(self) -> None:
        agreed = combine([engine.vote for engine in self.engines if engine.vote])
        for engine in self.engines:
            engine.settle(agreed)
