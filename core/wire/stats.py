"""What a core counts, as vLLM 0.25.1 declares it: msgpack maps."""

from typing import Any

import msgspec


class PrefixCacheStats(msgspec.Struct):
    """Counts since the last statistics, in tokens except ``requests`` and ``preempted_requests``."""

    reset: bool = False
    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0


class SpecDecodingStats(msgspec.Struct):
    """What became of the drafts of one step. ``…_per_pos``: index 0 counts the drafts' first tokens.

    Releases after 0.25 look for ``num_draft_tokens_per_pos``, and the others pass over it.
    """

    num_spec_tokens: int = 0
    """Most tokens in a draft."""
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_tokens_per_pos: list[int] = msgspec.field(default_factory=list)
    num_draft_tokens_per_pos: list[int] = msgspec.field(default_factory=list)

    @classmethod
    def of(cls, num_spec_tokens: int) -> "SpecDecodingStats":
        """No draft yet."""
        return cls(num_spec_tokens, 0, 0, 0, [0] * num_spec_tokens, [0] * num_spec_tokens)

    def count(self, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """One draft."""
        self.num_drafts += 1
        self.num_draft_tokens += num_draft_tokens
        self.num_accepted_tokens += num_accepted_tokens
        for position in range(num_draft_tokens):
            self.num_draft_tokens_per_pos[position] += 1
            self.num_accepted_tokens_per_pos[position] += position < num_accepted_tokens


class SchedulerStats(msgspec.Struct):
    """The scheduler after a step. ``kv_cache_usage`` is 0..1. Genuine front ends need every key: none is omitted."""

    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    num_skipped_waiting_reqs: int = 0
    step_counter: int = 0
    current_wave: int = 0
    kv_cache_usage: float = 0.0
    prefix_cache_stats: PrefixCacheStats = msgspec.field(default_factory=PrefixCacheStats)
    connector_prefix_cache_stats: PrefixCacheStats | None = None
    kv_cache_eviction_events: list[Any] = msgspec.field(default_factory=list)
    spec_decoding_stats: SpecDecodingStats | None = None
    kv_connector_stats: dict[str, Any] | None = None
    waiting_lora_adapters: dict[str, int] = msgspec.field(default_factory=dict)
    running_lora_adapters: dict[str, int] = msgspec.field(default_factory=dict)
    cudagraph_stats: dict[str, Any] | None = None
    perf_stats: dict[str, Any] | None = None
