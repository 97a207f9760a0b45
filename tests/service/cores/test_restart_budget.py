"""How soon, and how often, a core is started again."""

from service.cores.restart_budget import WINDOW_S, RestartBudget


class Clock:
    """Moves when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_that_was_useful_is_started_at_once() -> None:
    """However often, within the limit."""
    budget = RestartBudget(3, Clock())
    assert [budget.spend(was_useful=True) for _ in range(4)] == [0.0, 0.0, 0.0, None]


def test_one_that_was_not_has_to_wait() -> None:
    """Longer and longer, until one has been of use."""
    budget = RestartBudget(100, Clock())
    delays = [budget.spend(was_useful=False) or 0.0 for _ in range(8)]
    for delay, longest in zip(delays, [0.5, 1, 2, 4, 8, 10, 10, 10], strict=True):
        assert longest / 2 <= delay <= longest
    assert budget.spend(was_useful=True) == 0.0
    assert (budget.spend(was_useful=False) or 1.0) <= 0.5


def test_what_is_long_past_is_forgotten() -> None:
    """The limit is one of a time."""
    clock = Clock()
    budget = RestartBudget(2, clock)
    assert [budget.spend(was_useful=True) for _ in range(3)] == [0.0, 0.0, None]
    clock.now = WINDOW_S
    assert [budget.spend(was_useful=True) for _ in range(3)] == [0.0, 0.0, None]


def test_none_at_all() -> None:
    """The first loss is the last."""
    assert RestartBudget(0, Clock()).spend(was_useful=True) is None
