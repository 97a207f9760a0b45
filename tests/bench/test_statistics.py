import pytest

from bench.load import RequestRecord
from bench.statistics import Distribution, inter_token_latencies_s, lateness_s, summarize

ONE = RequestRecord(
    start=10.0, end=14.0, arrivals=[(12.0, 1), (13.0, 1), (14.0, 2)], num_prompt_tokens=6, num_cached_tokens=2
)
TWO = RequestRecord(start=11.0, end=15.0, arrivals=[(15.0, 4)], num_prompt_tokens=6)
FAILED = RequestRecord(start=10.0, end=20.0, arrivals=[(11.0, 1)], error="UNAVAILABLE")


def test_the_tokens_of_one_message_share_its_wait() -> None:
    """A merged delta counts as its tokens, evenly spread, not as one quick token."""
    assert list(inter_token_latencies_s(ONE)) == [1.0, 0.5, 0.5]


def test_a_summary_counts_what_succeeded() -> None:
    """Failed requests are counted by status and in nothing else but the duration."""
    summary = summarize([ONE, TWO, FAILED])
    assert (summary.num_requests, summary.errors) == (3, {"UNAVAILABLE": 1})
    assert (summary.num_prompt_tokens, summary.num_cached_tokens, summary.num_output_tokens) == (12, 2, 8)
    assert summary.duration_s == 10.0
    assert summary.output_tokens_per_s == pytest.approx(0.8)
    assert summary.tokens_per_message == 2.0
    assert summary.ttft_ms.median == 3000.0
    assert summary.itl_ms.median == 500.0
    assert summary.request_tokens_per_s == Distribution(1.0, 1.0, 1.0, 1.0)
    assert summary.prefill_tokens_per_s.mean == pytest.approx((4 / 2 + 6 / 4) / 2)


def test_a_run_in_which_all_failed_has_zeros() -> None:
    """There is still a report."""
    summary = summarize([FAILED])
    assert (summary.output_tokens_per_s, summary.tokens_per_message) == (0.0, 0.0)
    assert summary.itl_ms == Distribution()


def test_lateness_is_measured_from_the_earliest_message() -> None:
    """Against a schedule of one token a second, the third message came half a second late."""
    record = RequestRecord(start=0.0, arrivals=[(5.0, 1), (6.0, 1), (7.5, 1), (9.0, 2)])
    assert list(lateness_s(record, pace=1.0)) == [0.0, 0.0, 0.5, 0.0]
