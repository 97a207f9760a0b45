"""How much may be held, and when there will be room."""

from dataclasses import dataclass

import pytest

from service.admission.budget import Budget, RecentSum


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def held_budget(clock: Clock, chance: float, limit: int = 10) -> Budget:
    """Full."""
    budget = Budget(limit, clock, lambda: chance)
    budget.take(limit)
    return budget


def test_what_fits() -> None:
    """As much as the limit, no more; nothing always fits."""
    budget = Budget(10)
    assert budget.has_room(10)
    assert not budget.has_room(11)
    budget.take(10)
    assert not budget.has_room(1)
    assert budget.has_room(0)
    budget.give_back(4)
    assert budget.has_room(4)
    assert not budget.has_room(5)


def test_delay_is_that_until_there_is_room() -> None:
    """What is too much now, at the rate at which things end: 2 a second."""
    clock = Clock()
    budget = held_budget(clock, 0.0, limit=100)
    clock.now += 10
    budget.give_back(20)
    budget.take(20)
    assert budget.drain_per_s == pytest.approx(2)
    assert budget.refuse(6) == pytest.approx(3)


def test_refused_come_again_one_after_another() -> None:
    """The more were refused of late, the longer the time over which chance spreads them."""
    clock = Clock()
    budget = held_budget(clock, 0.5, limit=100)
    clock.now += 10
    budget.give_back(20)
    budget.take(20)
    delays = [budget.refuse(2) for _ in range(3)]
    assert delays == pytest.approx([(2 + 1) / 2, (2 + 2) / 2, (2 + 3) / 2])
    clock.now += 60
    budget.give_back(10)
    budget.take(10)
    assert budget.refuse(2) == pytest.approx((2 + 1) / (10 / 30))


@pytest.mark.parametrize(("chance", "delay_s"), [(0.0, 5.0), (1.0, 10.0)])
def test_nothing_ends(chance: float, delay_s: float) -> None:
    """Nobody knows when there will be room."""
    clock = Clock()
    budget = held_budget(clock, chance)
    assert budget.refuse(1) == delay_s
    clock.now += 31
    assert budget.refuse(1) == delay_s


def test_delay_is_bounded() -> None:
    """From a tenth of a second, and chance has its part in that too, to a minute."""
    clock = Clock()
    budget = held_budget(clock, 0.5, limit=1_000_000)
    clock.now += 1
    budget.give_back(900_000)
    budget.take(900_000)
    assert budget.refuse(1) == pytest.approx(0.15)
    slow = held_budget(clock, 0.0)
    clock.now += 1
    slow.give_back(1)
    slow.take(1)
    assert slow.refuse(1000) == 60


def test_idle_time_is_not_counted() -> None:
    """After an hour without work the rate is that of the work that followed, not of the hour."""
    clock = Clock()
    budget = held_budget(clock, 0.0)
    budget.give_back(10)
    clock.now += 3600
    budget.take(10)
    clock.now += 2
    budget.give_back(8)
    assert budget.drain_per_s == pytest.approx(4)


def test_recent_sum() -> None:
    """What is older than the window is forgotten, a second at a time."""
    clock = Clock()
    recent = RecentSum(3, clock)
    for amount in (1, 2, 4, 8):
        recent.add(amount)
        clock.now += 1
    assert recent.total() == 4 + 8
    clock.now += 1
    assert recent.total() == 8


def test_a_moment_of_emptiness_forgets_nothing() -> None:
    """What was given back before it still tells how fast things end."""
    clock = Clock()
    budget = Budget(8, clock, chance=lambda: 0.0)
    budget.take(8)
    clock.now += 4
    budget.give_back(8)
    clock.now += 1
    budget.take(8)
    assert budget.drain_per_s == 2.0
