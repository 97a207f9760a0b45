"""The bytes that calls hold."""

import pytest

from service.budget import Budget
from service.errors import QueueFull
from service.held_message import HeldMessage


def test_counted_until_the_call_ends() -> None:
    """The next request of a call takes the place of the one before; what does not fit is not counted."""
    budget = Budget(100)
    stream, other = HeldMessage(budget), HeldMessage(budget)
    stream.hold(bytes(60))
    stream.hold(bytes(70))
    assert budget.held == 70
    with pytest.raises(QueueFull, match="100 bytes together and have 70, this one has 40") as refused:
        other.hold(bytes(40))
    assert refused.value.retry_after_s > 0
    other.release()
    assert budget.held == 70
    stream.release()
    stream.release()
    assert budget.held == 0
