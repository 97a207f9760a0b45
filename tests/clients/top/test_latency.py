"""Quantiles from buckets."""

import pytest

from sluicegate.v1 import control_service_pb2 as pb
from sluicegate_client.top.latency import quantile_s


def latency(*counts: int) -> pb.Latency:
    return pb.Latency(bounds_s=[1.0, 2.0, 4.0], counts=counts)


@pytest.mark.parametrize(
    ("before", "after", "q", "expected"),
    [
        ((0, 0, 0, 0), (10, 0, 0, 0), 0.5, 0.5),
        ((0, 0, 0, 0), (5, 5, 0, 0), 0.5, 1.0),
        ((5, 0, 0, 0), (5, 0, 10, 0), 0.5, 3.0),
        ((0, 0, 0, 0), (0, 0, 0, 3), 0.99, 4.0),
        ((1, 1, 1, 1), (1, 1, 1, 1), 0.5, None),
    ],
    ids=["in the first bucket", "at a bound", "only what is new counts", "above all bounds", "nothing new"],
)
def test_quantiles(before: tuple[int, ...], after: tuple[int, ...], q: float, expected: float | None) -> None:
    """Linear within a bucket, of the difference of two counts."""
    assert quantile_s(latency(*before), latency(*after), q) == expected


def test_a_server_without_figures() -> None:
    """One that does not tell latencies has none."""
    assert quantile_s(pb.Latency(), pb.Latency(), 0.5) is None
