"""The choice of a rank."""

import pytest

from service.cores.load_balancer import LoadBalancer, is_clearly_busier
from service.cores.prefix_memory import PrefixMemory

LONG = [*range(64)]


@pytest.fixture
def balancer() -> LoadBalancer:
    return LoadBalancer(3, PrefixMemory(block_size=16))


def test_the_least_busy(balancer: LoadBalancer) -> None:
    """Wherever the turn stands."""
    assert {balancer.choose({0: 9, 1: 4, 2: 5}, [i]) for i in range(6)} == {1}


def test_equals_take_turns(balancer: LoadBalancer) -> None:
    """So that a burst before the first statistics is spread; a rank that is not to be had is passed over."""
    chosen = [balancer.choose({0: 0, 1: 0, 2: 0}, [i]) for i in range(6)]
    assert sorted(chosen[:3]) == sorted(chosen[3:]) == [0, 1, 2]
    assert {balancer.choose({0: 0, 2: 0}, [i]) for i in range(6)} == {0, 2}


def test_one_that_is_named(balancer: LoadBalancer) -> None:
    """Is taken, however busy and whatever others have cached."""
    balancer.choose({0: 0, 1: 0, 2: 0}, LONG, pinned=1)
    assert balancer.choose({0: 0, 1: 0, 2: 1000}, LONG, pinned=2) == 2


def test_a_prompt_goes_where_its_beginning_went(balancer: LoadBalancer) -> None:
    """The longest beginning counts, also when that rank is a little busier."""
    balancer.choose({0: 0, 1: 0, 2: 0}, LONG[:16], pinned=0)
    balancer.choose({0: 0, 1: 0, 2: 0}, LONG[:48], pinned=2)
    assert balancer.choose({0: 0, 1: 0, 2: 8}, [*LONG, 7]) == 2
    assert balancer.choose({0: 8, 1: 0, 2: 0}, [*LONG[:16], *[9] * 16]) in (0, 2), "both have the first block"


def test_not_where_it_would_wait(balancer: LoadBalancer) -> None:
    """A rank that is clearly busier loses the prompt to the least busy one, which is warm from then on."""
    balancer.choose({0: 0, 1: 0, 2: 0}, LONG, pinned=0)
    assert balancer.choose({0: 100, 1: 0, 2: 50}, LONG) == 1
    assert balancer.choose({0: 100, 1: 8, 2: 0}, LONG) == 1


def test_cache_salt_is_a_session(balancer: LoadBalancer) -> None:
    """Prompts too short for a block go where their salt went; the same prompt under another salt need not."""
    balancer.choose({0: 0, 1: 0, 2: 0}, [1], "mine", pinned=2)
    assert {balancer.choose({0: 0, 1: 0, 2: 5}, [i], "mine") for i in range(5)} == {2}
    assert balancer.choose({0: 0, 1: 0, 2: 5}, [1], "yours") != 2


def test_a_cache_that_is_empty_again(balancer: LoadBalancer) -> None:
    """Attracts nothing."""
    balancer.choose({0: 0, 1: 0, 2: 0}, LONG, pinned=0)
    balancer.forget(0)
    assert balancer.choose({0: 1, 1: 1, 2: 0}, LONG) == 2


def test_one_rank_needs_no_memory() -> None:
    """It is always that one."""
    memory = PrefixMemory(16)
    assert LoadBalancer(1, memory).choose({0: 99}, LONG) == 0
    assert len(memory) == 0


@pytest.mark.parametrize(
    ("load", "lowest", "expected"), [(8, 0, False), (9, 0, True), (24, 16, False), (25, 16, True), (150, 100, False)]
)
def test_clearly_busier(load: int, lowest: int, expected: bool) -> None:
    """More than two waiting or eight running sequences, and more than half as much again."""
    assert is_clearly_busier(load, lowest) is expected
