"""Who it was that died."""

from service.cores.death_notices import DeathNotices


def test_the_only_core_is_dead_at_once() -> None:
    """There is nobody else it could be."""
    assert DeathNotices().came([0]) == {0}


def test_whoever_is_heard_is_not_dead() -> None:
    """The last one left is."""
    deaths = DeathNotices()
    assert deaths.came([0, 1, 2]) == set()
    assert deaths.heard(1) == set()
    assert deaths.heard(0) == {2}
    deaths.lost(2)
    assert not deaths


def test_all_have_died() -> None:
    """As many notices as cores need nobody to be heard."""
    deaths = DeathNotices()
    assert deaths.came([0, 1]) == set()
    assert deaths.came([0, 1]) == {0, 1}


def test_one_death_after_another() -> None:
    """Who was heard after the first notice may have sent the second; who has sent none is never convicted."""
    deaths = DeathNotices()
    assert deaths.came([0, 1, 2]) == set()
    assert deaths.heard(1) == set()
    assert deaths.came([0, 1, 2]) == set()
    assert deaths.heard(2) == {0, 1}


def test_a_death_that_is_noticed_otherwise() -> None:
    """A process that ended clears the notice up: nobody else is convicted later."""
    deaths = DeathNotices()
    deaths.came([0, 1])
    deaths.lost(0)
    assert not deaths
    assert deaths.heard(0) == set()
    assert deaths.came([1]) == {1}
