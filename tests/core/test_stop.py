"""When a request ends, and with which reason."""

from typing import Any

import pytest

from core.stop import Stop, find_stop
from core.wire.messages import FinishReason
from core.wire.sampling_params import RepetitionDetection
from tests.core.builders import make_request

EOS = 2
LENGTH = Stop(FinishReason.LENGTH)
REPETITION = Stop(FinishReason.REPETITION, "repetition_detected")


def stop_after(output: list[int], max_num_tokens: int = 64, **params: Any) -> Stop | None:
    request = make_request(prompt=[1, 1, 1], max_num_tokens=max_num_tokens, **params)
    request.token_ids += output
    return find_stop(request)


def test_eos_stops_without_a_reason_and_a_stop_token_with_its_id() -> None:
    """EOS goes before the stop tokens, and ignored EOS is simply not set."""
    assert stop_after([EOS], eos_token_id=EOS) == Stop(FinishReason.STOP)
    assert stop_after([7], stop_token_ids=[7]) == Stop(FinishReason.STOP, 7)
    assert stop_after([EOS], eos_token_id=EOS, stop_token_ids=[EOS]) == Stop(FinishReason.STOP)
    assert stop_after([EOS], all_stop_token_ids=[EOS]) is None


def test_a_stop_token_as_the_last_possible_one_is_a_stop() -> None:
    """Only a last token that says nothing is LENGTH."""
    assert stop_after([5, EOS], max_tokens=2, eos_token_id=EOS) == Stop(FinishReason.STOP)
    assert stop_after([5, 6], max_tokens=2, eos_token_id=EOS) == LENGTH


def test_nothing_stops_before_min_tokens() -> None:
    """Neither EOS nor a stop token nor repetition among the first tokens; from min_tokens on they do."""
    repetition = RepetitionDetection(1, 1, 2)
    assert stop_after([EOS, EOS], min_tokens=3, eos_token_id=EOS, repetition_detection=repetition) is None
    assert stop_after([EOS] * 3, min_tokens=3, eos_token_id=EOS) == Stop(FinishReason.STOP)


def test_min_tokens_beyond_the_context_still_ends() -> None:
    """A request that may not stop before its context does ends as LENGTH."""
    assert stop_after([5, EOS], max_num_tokens=5, max_tokens=60, min_tokens=60, eos_token_id=EOS) == LENGTH


@pytest.mark.parametrize(
    ("output", "sizes", "stops"),
    [
        ([5, 6, 5, 6], (4, 0, 2), True),
        ([9, 5, 6, 7, 5, 6, 7], (4, 0, 2), True),
        ([5, 6, 5, 6], (1, 1, 2), False),
        ([5, 5, 5], (4, 2, 2), False),
        ([5, 5, 5, 5], (4, 2, 2), True),
        ([5, 6, 5, 6], (4, 0, 3), False),
        ([5, 6, 5, 6, 5, 6], (4, 0, 3), True),
        ([5, 6, 5, 7], (4, 0, 2), False),
        ([5, 5], (0, 0, 0), False),
        ([], (4, 0, 2), False),
        ([1], (4, 0, 2), False),
    ],
)
def test_repetition_is_min_count_copies_at_the_end_of_the_output(
    output: list[int], sizes: tuple[int, int, int], stops: bool
) -> None:
    """A pattern of an allowed size, as often as asked; the prompt does not count, and max_pattern_size 0 is off."""
    assert stop_after(output, repetition_detection=RepetitionDetection(*sizes)) == (REPETITION if stops else None)
