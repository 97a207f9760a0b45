"""Quantiles of what was counted in buckets."""

from collections.abc import Sequence
from itertools import accumulate

from sluicegate.v1 import control_service_pb2 as pb


def quantile_s(before: pb.Latency, after: pb.Latency, q: float) -> float | None:
    """The ``q``-quantile, q in (0, 1), of the values between two counts, in seconds; None if there were none.

    Linear within a bucket, as Prometheus' histogram_quantile has it; above all bounds it is the highest of them.
    """
    counts = [now - then for now, then in zip(after.counts, before.counts, strict=True)]
    totals = [*accumulate(counts)]
    if not totals or totals[-1] <= 0:
        return None
    rank = q * totals[-1]
    bucket = next(index for index, total in enumerate(totals) if total >= rank)
    return _within(after.bounds_s, bucket, (rank - (totals[bucket] - counts[bucket])) / counts[bucket])


def _within(bounds_s: Sequence[float], bucket: int, part: float) -> float:
    if bucket == len(bounds_s):
        return bounds_s[-1]
    low = bounds_s[bucket - 1] if bucket else 0.0
    return low + (bounds_s[bucket] - low) * part
