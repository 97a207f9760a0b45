"""Records of requests to figures."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from bench.load import RequestRecord


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of some figure over requests or tokens; all zero where there was none."""

    median: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    mean: float = 0.0

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        sample = np.fromiter(values, float)
        if not sample.size:
            return cls()
        median, p90, p99 = np.percentile(sample, (50, 90, 99)).tolist()
        return cls(median, p90, p99, float(sample.mean()))


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one pass. Latencies and rates are of the requests that succeeded."""

    num_requests: int
    errors: dict[str, int]
    """How many requests failed, by gRPC status; INCOMPLETE ended with fewer tokens than asked for."""
    duration_s: float
    """From sending the first request to the end of the last."""
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    output_tokens_per_s: float
    """Over the whole pass."""
    tokens_per_message: float
    """Above 1: the server merged deltas."""
    ttft_ms: Distribution
    itl_ms: Distribution
    """Time between tokens. The tokens of one message share the time since the message before it."""
    request_tokens_per_s: Distribution
    """Output tokens of a request over its whole time, TTFT included."""
    prefill_tokens_per_s: Distribution
    """Prompt tokens that were not cached, over TTFT."""


def summarize(records: Sequence[RequestRecord]) -> Summary:
    """Raises ValueError when there are no records."""
    succeeded = [record for record in records if record.error is None]
    duration_s = max(record.end for record in records) - min(record.start for record in records)
    num_output_tokens = sum(record.num_output_tokens for record in succeeded)
    num_messages = sum(len(record.arrivals) for record in succeeded)
    return Summary(
        num_requests=len(records),
        errors=dict(Counter(record.error for record in records if record.error is not None)),
        duration_s=duration_s,
        num_prompt_tokens=sum(record.num_prompt_tokens for record in succeeded),
        num_cached_tokens=sum(record.num_cached_tokens for record in succeeded),
        num_output_tokens=num_output_tokens,
        output_tokens_per_s=num_output_tokens / duration_s,
        tokens_per_message=num_output_tokens / num_messages if num_messages else 0.0,
        ttft_ms=Distribution.of(record.ttft_s * 1e3 for record in succeeded),
        itl_ms=Distribution.of(itl_s * 1e3 for record in succeeded for itl_s in inter_token_latencies_s(record)),
        request_tokens_per_s=Distribution.of(
            record.num_output_tokens / (record.end - record.start) for record in succeeded
        ),
        prefill_tokens_per_s=Distribution.of(
            (record.num_prompt_tokens - record.num_cached_tokens) / record.ttft_s for record in succeeded
        ),
    )


def inter_token_latencies_s(record: RequestRecord) -> Iterable[float]:
    """One for each token after the first message."""
    for (before, _), (now, num_tokens) in zip(record.arrivals, record.arrivals[1:], strict=False):
        yield from [(now - before) / num_tokens] * num_tokens


def lateness_s(record: RequestRecord, pace: float) -> Iterable[float]:
    """How far each message lay behind a schedule of ``pace`` tokens/s, the earliest of the stream being on time.

    What a null core that keeps such a schedule makes of it is the time that the gateway and the wire add, less its
    minimum.
    """
    num_tokens, behind = 0, []
    for arrival, num_new_tokens in record.arrivals:
        num_tokens += num_new_tokens
        behind.append(arrival - num_tokens / pace)
    return [late - min(behind) for late in behind]
