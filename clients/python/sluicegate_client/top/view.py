"""What a look at a server shows: what is so now, and rates and latencies of the last seconds. Pure."""

from collections import deque
from dataclasses import dataclass

from sluicegate.v1 import control_service_pb2 as pb
from sluicegate_client.top.latency import quantile_s

WINDOW_S = 10.0
"""What rates and latencies are of."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds; None if nothing was measured in the window."""

    median_s: float | None
    p99_s: float | None

    @classmethod
    def between(cls, before: pb.Latency, after: pb.Latency) -> "Latency":
        return cls(quantile_s(before, after, 0.5), quantile_s(before, after, 0.99))


@dataclass(frozen=True, slots=True)
class RankView:
    """One core."""

    load: pb.RankLoad
    output_tokens_per_s: float
    prompt_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class View:
    """Of the whole server; ``prefix_hit_rate`` is in [0, 1], None if nothing was looked up in the window."""

    load: pb.Load
    output_tokens_per_s: float
    prompt_tokens_per_s: float
    num_preemptions: int
    """In the window."""
    prefix_hit_rate: float | None
    time_to_first_token: Latency
    inter_token_latency: Latency
    ranks: list[RankView]


class Watcher:
    """Remembers the loads of the last ``WINDOW_S`` seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, pb.Load]] = deque()

    def see(self, load: pb.Load, now_s: float) -> View:
        """The view once ``load`` has come, at ``now_s`` by any clock that only rises."""
        if self._seen and load.num_output_tokens < self._seen[-1][1].num_output_tokens:
            self._seen.clear()  # Another server, at the same address: it counts from zero.
        self._seen.append((now_s, load))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - WINDOW_S:
            self._seen.popleft()
        then_s, before = self._seen[0]
        return _view(before, load, now_s - then_s)


def _view(before: pb.Load, load: pb.Load, seconds: float) -> View:
    num_queries = load.num_prefix_cache_queries - before.num_prefix_cache_queries
    num_hits = load.num_prefix_cache_hits - before.num_prefix_cache_hits
    return View(
        load=load,
        output_tokens_per_s=_rate(before.num_output_tokens, load.num_output_tokens, seconds),
        prompt_tokens_per_s=_rate(before.num_prompt_tokens, load.num_prompt_tokens, seconds),
        num_preemptions=load.num_preemptions - before.num_preemptions,
        prefix_hit_rate=num_hits / num_queries if num_queries > 0 else None,
        time_to_first_token=Latency.between(before.time_to_first_token, load.time_to_first_token),
        inter_token_latency=Latency.between(before.inter_token_latency, load.inter_token_latency),
        ranks=[_rank_view(then, now, seconds) for then, now in zip(before.ranks, load.ranks, strict=False)],
    )


def _rank_view(before: pb.RankLoad, load: pb.RankLoad, seconds: float) -> RankView:
    return RankView(
        load=load,
        output_tokens_per_s=_rate(before.num_output_tokens, load.num_output_tokens, seconds),
        prompt_tokens_per_s=_rate(before.num_prompt_tokens, load.num_prompt_tokens, seconds),
    )


def _rate(before: int, now: int, seconds: float) -> float:
    return (now - before) / seconds if seconds > 0 else 0.0
