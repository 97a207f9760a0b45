"""What one core has done lately."""

import pytest

from service.metrics.recent_work import RecentWork


def test_tokens_count_for_two_seconds() -> None:
    """To a tenth of a second, however many messages bring them."""
    work = RecentWork()
    for step in range(1000):
        work.note_tokens(2, 100 + step / 100)
    assert work.tokens_per_second(109.99) == pytest.approx(200, rel=0.1)
    assert work.tokens_per_second(110.99) == pytest.approx(100, rel=0.1)
    assert work.tokens_per_second(113) == 0
    work.note_tokens(2, 200)
    assert work.tokens_per_second(200) == 1


def test_the_last_64_prompts_make_the_hit_rate() -> None:
    """By tokens, and never above 1."""
    work = RecentWork()
    assert work.cache_hit_rate == 0
    work.note_prompt(300, 300)
    work.note_prompt(100, 0)
    assert work.cache_hit_rate == 0.75
    for _ in range(64):
        work.note_prompt(10, 99)
    assert work.cache_hit_rate == 1


def test_nothing_was_done() -> None:
    """Before anything was."""
    assert RecentWork().tokens_per_second(5) == 0
