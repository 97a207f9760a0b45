"""The gate by itself; what calls see of it is in test_server.py."""

from typing import cast

import pytest

from service.errors import Unavailable
from service.gate import Backend, Closed, Gate
from service.servicers.health import Health

BACKEND = cast(Backend, object())


@pytest.mark.parametrize("why", [Closed.DRAINING, Closed.CORE_LOST])
def test_what_is_closed_for_good_is_not_opened(why: Closed) -> None:
    """Not by a load either that ends only then, as that of a worker that comes while all are drained."""
    health = Health([])
    gate = Gate(health)
    gate.close(why)
    gate.open(BACKEND)
    assert gate.closed_for_good.is_set()
    assert not health.is_serving
    with pytest.raises(Unavailable, match=why.value):
        gate.enter()
    assert gate.look_in() is BACKEND


def test_a_lame_duck_lets_calls_in() -> None:
    """Whatever happens to the cores meanwhile, it does not say SERVING again."""
    health = Health([])
    gate = Gate(health)
    gate.open(BACKEND)
    assert health.is_serving
    gate.be_lame_duck()
    for is_answering in (False, True):
        gate.set_answering(is_answering)
        assert not health.is_serving
        assert gate.enter() is BACKEND
