"""Pauses: who is answered when."""

from concurrent.futures import Future

import pytest

from core.pauses import Pauses
from tests.core.builders import make_engine


@pytest.fixture
def pauses() -> Pauses:
    return Pauses(make_engine().scheduler)


def test_all_are_answered_when_idle(pauses: Pauses) -> None:
    """In their order, each with the outcome of its own work."""
    done: list[str] = []

    def fail() -> None:
        raise ValueError("no")

    first = pauses.pause("wait", lambda: done.append("first"))
    failing = pauses.pause("keep", fail)
    last = pauses.pause("abort", lambda: done.append("last"))
    assert pauses.is_pausing
    assert not any(answer.done() for answer in (first, failing, last))
    pauses.settle()
    assert done == ["first", "last"]
    assert first.result(timeout=0) is last.result(timeout=0) is None
    assert isinstance(failing.exception(timeout=0), ValueError)
    assert not pauses.is_pausing


def test_resuming_fails_those_that_wait(pauses: Pauses) -> None:
    """Their work is not done."""
    answer: Future[None] = pauses.pause("wait", lambda: pytest.fail("idle it was not"))
    pauses.resume()
    assert str(answer.exception(timeout=0)) == "resumed before the engine was idle"
    pauses.settle()


def test_what_an_answer_sets_off_may_pause_again(pauses: Pauses) -> None:
    """A pause out of another one's work is answered the next time."""
    again: list[Future[None]] = []
    pauses.pause("wait", lambda: again.append(pauses.pause("wait", lambda: None)))
    pauses.settle()
    assert not again[0].done()
    pauses.settle()
    assert again[0].done()
