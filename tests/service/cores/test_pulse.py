"""When a core is taken for stuck."""

from service.cores.pulse import BEATS_PER_TIMEOUT, Pulse


def test_a_talking_core_is_not_asked() -> None:
    """However long it talks."""
    pulse = Pulse()
    for _ in range(20):
        assert not pulse.beat()
        assert not pulse.is_silent
        assert not pulse.heard()


def test_a_quiet_core_is_asked_and_answers() -> None:
    """After a beat without a word, again and again."""
    pulse = Pulse()
    pulse.beat()
    for _ in range(20):
        assert pulse.beat()
        pulse.heard()
        assert not pulse.beat()
        assert not pulse.is_silent


def test_a_stuck_core_is_asked_once_and_is_silent_after_the_timeout() -> None:
    """One question waits in its queue, however long it is stuck."""
    pulse = Pulse()
    pulse.heard()
    pulse.beat()
    asked = []
    for _ in range(BEATS_PER_TIMEOUT):
        assert not pulse.is_silent
        asked.append(pulse.beat())
    assert asked == [True] + [False] * (BEATS_PER_TIMEOUT - 1)
    assert pulse.is_silent
    assert not any(pulse.beat() for _ in range(100))


def test_the_next_word_ends_the_silence() -> None:
    """And says that it did."""
    pulse = Pulse()
    while not pulse.is_silent:
        pulse.beat()
    assert pulse.heard()
    assert not pulse.is_silent
    assert not pulse.heard()


def test_a_gateway_that_slept_suspects_nobody() -> None:
    """However long it was stopped, to it that is one beat."""
    pulse = Pulse()
    pulse.heard()
    pulse.beat()
    pulse.beat()
    assert not pulse.is_silent
