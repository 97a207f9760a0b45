"""Counting values by their bounds."""

from service.metrics.histogram import TOKENS_PER_REQUEST, TOKENS_PER_STEP, Histogram


def test_a_bound_counts_what_equals_it() -> None:
    """Each bucket holds what is not above its bound, all that is below included; +Inf holds everything."""
    histogram = Histogram((1.0, 2.5))
    for value in (0, 1, 1.5, 2.5, 3):
        histogram.observe(value)
    assert histogram.buckets() == [("1.0", 2), ("2.5", 4), ("+Inf", 5)]
    assert histogram.sum == 8


def test_a_value_that_came_often() -> None:
    """Counts as often."""
    once, often = Histogram((1.0, 2.5)), Histogram((1.0, 2.5))
    for _ in range(3):
        once.observe(2)
    often.observe(2, 3)
    assert (often.buckets(), often.sum) == (once.buckets(), once.sum)


def test_buckets_up_to_a_highest() -> None:
    """Bounds above the highest are left out, and what they counted is in +Inf."""
    histogram = Histogram((1.0, 2.0, 5.0))
    histogram.observe(4)
    assert histogram.buckets(highest=2) == [("1.0", 0), ("2.0", 0), ("+Inf", 1)]


def test_bounds() -> None:
    """The bounds of vLLM: 1-2-5 for a request's tokens, powers of two for those of a step."""
    assert TOKENS_PER_REQUEST[:7] == (1, 2, 5, 10, 20, 50, 100)
    assert TOKENS_PER_STEP == (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
