"""The states of a shutdown."""

import signal

import pytest

from core.shutdown import CLEANUP_GRACE_S, Shutdown, ShutdownState


def running(timeout_s: float = 0.0) -> Shutdown:
    shutdown = Shutdown(timeout_s)
    shutdown.start_running()
    return shutdown


def test_states_in_order() -> None:
    """LOADING, RUNNING, REQUESTED by a signal, SHUTTING_DOWN by the busy loop."""
    shutdown = Shutdown()
    states = [shutdown.state]
    for move in (shutdown.start_running, lambda: shutdown.handle_signal(signal.SIGTERM, None), shutdown.begin):
        move()
        states.append(shutdown.state)
    assert states == list(ShutdownState)


def test_second_signal_changes_nothing() -> None:
    """A signal during the shutdown neither restarts it nor cuts it short."""
    shutdown = running(timeout_s=600)
    for _ in range(2):
        shutdown.handle_signal(signal.SIGTERM, None)
    shutdown.begin()
    shutdown.handle_signal(signal.SIGINT, None)
    assert shutdown.state is ShutdownState.SHUTTING_DOWN
    assert not shutdown.overdue


def test_signal_while_loading() -> None:
    """A signal during the load ends it with the signal's exit code; a second one does not disturb the cleanup."""
    shutdown = Shutdown()
    with pytest.raises(SystemExit) as caught:
        shutdown.handle_signal(signal.SIGTERM, None)
    assert caught.value.code == 143
    shutdown.handle_signal(signal.SIGTERM, None)


def test_swallowed_signal() -> None:
    """If something in the load caught the exception of the signal, the core still does not start to run."""
    shutdown = Shutdown()
    with pytest.raises(SystemExit):
        shutdown.handle_signal(signal.SIGTERM, None)
    with pytest.raises(SystemExit):
        shutdown.start_running()
    assert not shutdown.has_served


def test_signal_while_nobody_is_left() -> None:
    """A core that waits for its next front end ends on a signal at once, and well: it has served."""
    shutdown = running(timeout_s=600)
    shutdown.stop_running()
    with pytest.raises(SystemExit) as caught:
        shutdown.handle_signal(signal.SIGTERM, None)
    assert caught.value.code == 0


def test_signal_before_nobody_is_left() -> None:
    """A signal just before the core begins to wait is not lost."""
    shutdown = running()
    shutdown.handle_signal(signal.SIGTERM, None)
    with pytest.raises(SystemExit) as caught:
        shutdown.stop_running()
    assert caught.value.code == 0


def test_running_again() -> None:
    """The next front end is served like the first one."""
    shutdown = running()
    shutdown.stop_running()
    shutdown.start_running()
    assert shutdown.state is ShutdownState.RUNNING
    assert not shutdown.requested


@pytest.mark.parametrize(
    ("timeout_s", "orphaned", "overdue"), [(0, False, True), (600, False, False), (600, True, True)]
)
def test_overdue(timeout_s: float, orphaned: bool, overdue: bool) -> None:
    """Requests are to be aborted at once without a timeout or a gateway, and not before a shutdown in any case."""
    shutdown = running(timeout_s)
    shutdown.orphaned = orphaned
    assert not shutdown.overdue
    shutdown.request()
    shutdown.begin()
    assert shutdown.overdue is overdue


def test_force_stands_behind() -> None:
    """When the shutdown begins, the process is given its time and that of the cleanup, and no more."""
    seconds: list[float] = []
    shutdown = Shutdown(5, seconds.append)
    shutdown.start_running()
    shutdown.request()
    shutdown.begin()
    assert seconds == [5 + CLEANUP_GRACE_S]
