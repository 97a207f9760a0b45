"""What is learned of steps, on steps of which the truth is known. All times are in seconds."""

import math
import random

import pytest

from core.step_pace import MIN_PREFILL_TOKENS, StepPace

BASE_S, TOKEN_S = 0.003, 0.0002


def seconds(num_decode_tokens: int, num_prefill_tokens: int) -> float:
    return BASE_S + TOKEN_S * (num_decode_tokens + num_prefill_tokens)


def make_pace(*steps: tuple[int, int], max_stretch: float = 2.5) -> StepPace:
    """One that has seen ``steps``, of so many tokens of decodes and of prefill."""
    pace = StepPace(max_stretch)
    for num_decode_tokens, num_prefill_tokens in steps:
        pace.observe(num_decode_tokens, num_prefill_tokens, seconds(num_decode_tokens, num_prefill_tokens))
    return pace


@pytest.mark.parametrize("steps", [(), ((0, 512),), ((1, 0),), ((0, 0), (0, 512))])
def test_without_measurements_there_is_no_bound(steps: tuple[tuple[int, int], ...]) -> None:
    """One of a kind is not enough."""
    assert make_pace(*steps).max_prefill_tokens(1) == math.inf


def test_zero_is_no_bound() -> None:
    """Whatever is known."""
    assert make_pace((0, 512), (1, 0), max_stretch=0).max_prefill_tokens(1) == math.inf


@pytest.mark.parametrize("num_decodes", [1, 8, 64])
@pytest.mark.parametrize("max_stretch", [1.5, 2.5, 4.0])
def test_a_step_with_as_many_takes_so_much_longer(num_decodes: int, max_stretch: float) -> None:
    """After some steps of the sizes that it allows itself, with a base that the first measurements hide."""
    pace = make_pace((0, 512), *[(num_decodes, 0)] * 20, max_stretch=max_stretch)
    for _ in range(40):
        num_tokens = int(pace.max_prefill_tokens(num_decodes))
        pace.observe(num_decodes, num_tokens, seconds(num_decodes, num_tokens))
    stretch = seconds(num_decodes, num_tokens) / seconds(num_decodes, 0)
    assert stretch == pytest.approx(max_stretch, rel=0.05) or num_tokens == MIN_PREFILL_TOKENS


def test_it_is_never_longer_before_it_is_known_well() -> None:
    """A first prefill is taken to cost all that its step took, so the first guess is too small and not too large."""
    pace = make_pace((0, 128), (1, 0))
    assert seconds(1, int(pace.max_prefill_tokens(1))) <= 2.5 * seconds(1, 0)


def test_more_decodes_allow_more() -> None:
    """Even those that no step has had yet, for each costs time as well; fewer allow less."""
    pace = make_pace((0, 512), (8, 0))
    few, as_seen, many = (pace.max_prefill_tokens(count) for count in (1, 8, 64))
    assert 0 < few < as_seen < many
    assert few >= as_seen / 8


def test_the_first_of_many_decodes_costs_something() -> None:
    """However dear prefill is, a step of one decode takes at least its part of a step of 64."""
    pace = StepPace(1001)
    pace.observe(64, 0, 0.064)
    pace.observe(0, 64, 0.64)
    assert pace.max_prefill_tokens(1) == pytest.approx(100, abs=1)


def test_decodes_do_not_make_it_forget_prefill() -> None:
    """Ten thousand of them."""
    pace = make_pace((0, 512), (1, 0))
    before = pace.max_prefill_tokens(1)
    for _ in range(10_000):
        pace.observe(1, 0, seconds(1, 0))
    assert pace.max_prefill_tokens(1) == pytest.approx(before)


def test_one_slow_step_changes_little_and_a_slower_machine_much() -> None:
    """A step that was held up for a second is forgotten in a few; prefill that costs thrice as much is soon known."""
    pace = make_pace((0, 512), *[(1, 0)] * 10, *[(1, 24)] * 10)
    before = pace.max_prefill_tokens(1)
    pace.observe(1, 24, 1.0)
    assert pace.max_prefill_tokens(1) >= before * 0.7
    pace.observe(1, 0, 1.0)
    assert pace.max_prefill_tokens(1) <= before * 1.3
    for _ in range(20):
        pace.observe(1, 0, seconds(1, 0))
        pace.observe(1, 24, seconds(1, 3 * 24))
    assert pace.max_prefill_tokens(1) == pytest.approx(before / 3, rel=0.15) or before / 3 < MIN_PREFILL_TOKENS


def test_noise_is_averaged() -> None:
    """Each step takes between 0.8 and 1.4 of its time: what is allowed stays near what it is without that."""
    draw = random.Random(3)
    pace = make_pace((0, 512), max_stretch=4.0)
    allowed = []
    for _ in range(200):
        pace.observe(8, 0, seconds(8, 0) * draw.uniform(0.8, 1.4))
        pace.observe(8, 60, seconds(8, 60) * draw.uniform(0.8, 1.4))
        allowed.append(pace.max_prefill_tokens(8))
    exact = make_pace((0, 512), *[(8, 0), (8, 60)] * 50, max_stretch=4.0).max_prefill_tokens(8)
    assert exact / 1.5 < sum(allowed[50:]) / 150 < exact * 1.5
    assert exact / 3 < min(allowed[50:]) <= max(allowed[50:]) < exact * 3


def test_costs_that_do_not_add_up_leave_a_bound() -> None:
    """A step with prefill that took less than decodes alone, a clock that stood still: never less than the least."""
    pace = make_pace((4, 0))
    pace.observe(4, 16, 0.0)
    assert pace.max_prefill_tokens(4) == math.inf
    pace.observe(4, 16, 1.0)
    pace.observe(4, 16, 0.0)
    assert MIN_PREFILL_TOKENS <= pace.max_prefill_tokens(4) < math.inf


def test_it_says_what_it_knows() -> None:
    """For a log."""
    assert repr(make_pace((0, 512), (1, 0))) == "StepPace(1 decodes take 3.20 ms, a token of prefill 0.206 ms)"
