"""Calls and their answers."""

import asyncio

import pytest

from core.wire.messages import UtilityOutput
from service.cores.utility_calls import UtilityCalls, agreed
from service.errors import Unavailable


async def test_a_core_that_is_gone_fails_its_own_calls() -> None:
    """Those to others wait on, and an answer that comes late changes nothing."""
    calls = UtilityCalls()
    with calls.one(0) as (first_id, first), calls.one(1) as (second_id, second):
        calls.fail(0, Unavailable("gone"))
        calls.resolve(UtilityOutput(first_id, None, (None, 1)))
        calls.resolve(UtilityOutput(second_id, None, (None, 2)))
        with pytest.raises(Unavailable):
            await asyncio.wait_for(first, 10)
        assert await asyncio.wait_for(second, 10) == 2
    assert len(calls) == 0


def test_agreed() -> None:
    """An order is carried out if all have done it, a question is a yes if one says so; else the first answer counts."""
    assert agreed("reset_prefix_cache", [True, True]) is True
    assert agreed("reset_prefix_cache", [True, False]) is False
    assert agreed("is_sleeping", [True, False]) is True
    assert agreed("get_supported_tasks", [["generate"], ["generate"]]) == ["generate"]
    assert agreed("wake_up", [None, None]) is None
