"""Distributions that can be done in the head."""

import numpy as np
import pytest

from bench.quality.score import Score

EVEN = np.log(np.array([[0.5, 0.5]] * 3, np.float32))
SKEWED = np.log(np.array([[0.25, 0.75]] * 3, np.float32))


def test_the_reference_itself_is_no_distance_away() -> None:
    """Nor is it if all logits are moved alike."""
    score = Score()
    score.add([0, 1, 0], EVEN + 7, EVEN)
    assert score.divergence == pytest.approx(0, abs=1e-7)


def test_divergence_is_a_mean_over_all_windows() -> None:
    """KL of an even coin from one of 1 : 3 is half the log of 4 / 3."""
    score = Score()
    score.add([0, 1, 0], SKEWED, EVEN)
    assert score.divergence == pytest.approx(np.log(4 / 3) / 2, rel=1e-6)
    score.add([0, 1, 0], EVEN, EVEN)
    assert score.divergence == pytest.approx(np.log(4 / 3) / 4, rel=1e-6)


def test_perplexity_is_of_the_tokens_that_follow() -> None:
    """Of the last row nobody knows what follows: here tokens 1 and 0, of probabilities 3/4 and 1/4."""
    score = Score()
    score.add([0, 1, 0], SKEWED, EVEN)
    assert score.perplexity == pytest.approx((4 / 3 * 4) ** 0.5, rel=1e-6)


def test_greedy_tokens_are_counted_where_the_reference_is_sure() -> None:
    """Elsewhere they do not matter."""
    score = Score()
    score.add_greedy(SKEWED, {0: 1, 2: 0})
    assert (score.num_agreeing, score.num_decisive) == (1, 2)
