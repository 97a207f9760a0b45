"""The one slot per request: merging, ending, failing."""

import asyncio

import numpy as np
import pytest

from core.wire.messages import EngineCoreOutput, FinishReason, LogprobsLists, PrefillStats
from service.output_stream import OutputStream


def a_row(token_id: int) -> LogprobsLists:
    return LogprobsLists(np.array([[token_id]], "<i4"), np.array([[-0.5]], "<f4"), np.array([1], "<i8"))


async def test_outputs_not_taken_are_merged() -> None:
    """What the caller has not taken is one output: tokens and log-probabilities joined, first and last things kept."""
    stream = OutputStream(["a"])
    stream.put(EngineCoreOutput("a", [1], a_row(1), prefill_stats=PrefillStats(5)))
    stream.put(EngineCoreOutput("a", [2, 3], num_nans_in_logits=1))
    stream.put(EngineCoreOutput("a", [4], a_row(4), finish_reason=FinishReason.STOP, stop_reason=4))
    (merged,) = await stream.next()
    assert merged.new_token_ids == [1, 2, 3, 4]
    assert merged.new_logprobs is not None
    assert merged.new_logprobs.token_ids.tolist() == [[1], [4]]
    assert merged.prefill_stats == PrefillStats(5)
    assert (merged.finish_reason, merged.stop_reason, merged.num_nans_in_logits) == (FinishReason.STOP, 4, 1)


async def test_logprobs_are_joined_once() -> None:
    """However many outputs wait, their log-probabilities are copied once, when they are taken: not at every merge."""
    stream = OutputStream(["a"])
    first_row = a_row(0)
    first = EngineCoreOutput("a", [0], first_row)
    stream.put(first)
    for token_id in range(1, 100):
        stream.put(EngineCoreOutput("a", [token_id], a_row(token_id)))
        assert first.new_logprobs is first_row
    (merged,) = await stream.next()
    assert merged.new_logprobs is not None
    assert merged.new_logprobs.token_ids.tolist() == [[token_id] for token_id in range(100)]


async def test_logprobs_that_do_not_fit_together_are_none() -> None:
    """Whoever asked for them misses them; the tokens are there."""
    stream = OutputStream(["a"])
    stream.put(EngineCoreOutput("a", [1], a_row(1)))
    stream.put(EngineCoreOutput("a", [2], LogprobsLists(*(np.zeros((1, 2, 3), "<i4") for _ in range(3)))))
    (merged,) = await stream.next()
    assert (merged.new_token_ids, merged.new_logprobs) == ([1, 2], None)


async def test_requests_have_slots_of_their_own() -> None:
    """Outputs of two requests stay apart, and are taken together."""
    stream = OutputStream(["a", "b"])
    for request_id, token_id in (("a", 1), ("b", 2), ("a", 3)):
        stream.put(EngineCoreOutput(request_id, [token_id]))
    assert [(output.request_id, output.new_token_ids) for output in await stream.next()] == [("a", [1, 3]), ("b", [2])]


async def test_nothing_comes_after_the_end() -> None:
    """A finished request gives nothing more, nor does one that the caller has finished with."""
    stream = OutputStream(["a", "b"])
    stream.put(EngineCoreOutput("a", [1], finish_reason=FinishReason.STOP))
    stream.put(EngineCoreOutput("b", [2]))
    stream.finish("b")
    stream.put(EngineCoreOutput("a", [3]))
    stream.put(EngineCoreOutput("b", [4]))
    assert [output.new_token_ids for output in await stream.next()] == [[1]]
    assert not stream.unfinished


async def test_failure_comes_after_what_was_there() -> None:
    """The outputs from before a failure are taken first; the first failure is the one that is raised, every time."""
    stream = OutputStream(["a"])
    stream.put(EngineCoreOutput("a", [1]))
    stream.fail(KeyError("first"))
    stream.fail(KeyError("second"))
    assert len(await stream.next()) == 1
    for _ in range(2):
        with pytest.raises(KeyError, match="first"):
            await stream.next()


async def test_waiting_caller_is_woken() -> None:
    """A caller that waits is woken by an output and by a failure; one that was cancelled takes nothing with it."""
    stream = OutputStream(["a"])
    cancelled = asyncio.ensure_future(stream.next())
    await asyncio.sleep(0)
    cancelled.cancel()
    stream.put(EngineCoreOutput("a", [1]))
    assert [output.new_token_ids for output in await stream.next()] == [[1]]
    waiting = asyncio.ensure_future(stream.next())
    await asyncio.sleep(0)
    stream.fail(KeyError("gone"))
    with pytest.raises(KeyError):
        await waiting


async def test_arrivals_are_told_and_whether_they_are_urgent() -> None:
    """The first output, a last one and a failure are; what comes between can wait."""
    told: list[bool] = []
    stream = OutputStream(["a", "b"], 0, told.append)
    stream.put(EngineCoreOutput("a", [1]))
    stream.put(EngineCoreOutput("b", [2]))
    stream.put(EngineCoreOutput("a", [3]))
    stream.put(EngineCoreOutput("b", [4], finish_reason=FinishReason.STOP))
    stream.fail(ValueError())
    assert told == [True, False, False, True, True]


async def test_failure_is_told_again_when_outputs_came_before_it() -> None:
    """Whoever takes once for each time it is told hears of the failure too."""
    told: list[bool] = []
    stream = OutputStream(["a"], 0, told.append)
    stream.put(EngineCoreOutput("a", [1]))
    stream.fail(ValueError("gone"))
    told.clear()
    assert [output.new_token_ids for output in stream.take()] == [[1]]
    assert told == [True]
    with pytest.raises(ValueError, match="gone"):
        stream.take()


def test_take_does_not_wait() -> None:
    """Nothing has come: nothing is given."""
    assert OutputStream(["a"]).take() == []
