"""What the dashboard shows.

In a query ``{I…}`` selects the gateways that are chosen, ``{M…}`` also the model; ``[R]`` is as long as a rate needs.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

_SHORT = {
    "{I": '{instance=~"$instance"',
    "{M": '{instance=~"$instance",model_name=~"$model"',
    "[R]": "[$__rate_interval]",
}


class Panel(NamedTuple):
    """``unit`` as Grafana calls it; ``queries`` by what their lines are called."""

    title: str
    unit: str
    description: str
    queries: Mapping[str, str]

    @property
    def expressions(self) -> list[tuple[str, str]]:
        """Each with its name, in PromQL but for Grafana's variables."""
        return [(legend, _written_out(query)) for legend, query in self.queries.items()]


class Row(NamedTuple):
    title: str
    panels: Sequence[Panel]


def _written_out(query: str) -> str:
    for short, long in _SHORT.items():
        query = query.replace(short, long)
    return query


def _percentiles(histogram: str, selector: str = "{M}") -> dict[str, str]:
    buckets = f"sum by (le) (rate({histogram}_bucket{selector}[R]))"
    return {f"p{p}": f"histogram_quantile(0.{p}, {buckets})" for p in (50, 95, 99)}


def _mean(histogram: str) -> str:
    return f"sum(rate({histogram}_sum{{M}}[R])) / sum(rate({histogram}_count{{M}}[R]))"


_CORE = "{{instance}} core {{engine}}"
_GATEWAY = "{{instance}}"

ROWS = [
    Row(
        "Calls",
        [
            Panel(
                "Calls by status",
                "reqps",
                "CANCELLED and DEADLINE_EXCEEDED are the clients' own.",
                {"{{code}}": "sum by (code) (rate(sluicegate:rpcs_total{I}[R]))"},
            ),
            Panel(
                "Calls by method",
                "reqps",
                "Of every status.",
                {"{{method}}": "sum by (method) (rate(sluicegate:rpcs_total{I}[R]))"},
            ),
            Panel(
                "Refused",
                "reqps",
                "RESOURCE_EXHAUSTED: more than is let in. UNAVAILABLE: loading, draining, or without a core.",
                {
                    "{{code}}": "sum by (code) "
                    '(rate(sluicegate:rpcs_total{I,code=~"RESOURCE_EXHAUSTED|UNAVAILABLE"}[R]))',
                },
            ),
            Panel(
                "Sequences that ended, by reason",
                "reqps",
                "abort: the client left, or an operator ended it.",
                {"{{finished_reason}}": "sum by (finished_reason) (rate(vllm:request_success_total{M}[R]))"},
            ),
            Panel(
                "Duration of calls, 95 %",
                "s",
                "Streams last as long as their answers.",
                {
                    "{{method}}": "histogram_quantile(0.95, sum by (le, method) "
                    "(rate(sluicegate:rpc_duration_seconds_bucket{I}[R])))"
                },
            ),
            Panel(
                "Streams and live requests",
                "short",
                "Live: taken on and not ended; sequences count against --max-queued-requests.",
                {
                    "streams": "sum(sluicegate:streams_open{I})",
                    "requests": "sum(sluicegate:live_requests{I})",
                    "sequences": "sum(sluicegate:live_sequences{I})",
                },
            ),
            Panel(
                "Prompt tokens of live sequences",
                "short",
                "Against --max-queued-tokens.",
                {_GATEWAY: "sluicegate:live_prompt_tokens{I}"},
            ),
        ],
    ),
    Row(
        "Latency",
        [
            Panel(
                "Time to first token",
                "s",
                "From arrival in the gateway.",
                _percentiles("vllm:time_to_first_token_seconds"),
            ),
            Panel(
                "From one token to the next",
                "s",
                "By the core's clock.",
                _percentiles("vllm:inter_token_latency_seconds"),
            ),
            Panel("From arrival to end", "s", "Of a sequence.", _percentiles("vllm:e2e_request_latency_seconds")),
            Panel(
                "In the queue",
                "s",
                "Grows first when there is too much to do.",
                _percentiles("vllm:request_queue_time_seconds"),
            ),
            Panel(
                "Prefill",
                "s",
                "From scheduled to the first token.",
                _percentiles("vllm:request_prefill_time_seconds"),
            ),
            Panel(
                "Decode",
                "s",
                "From the first to the last token.",
                _percentiles("vllm:request_decode_time_seconds"),
            ),
        ],
    ),
    Row(
        "Tokens",
        [
            Panel(
                "Tokens per second",
                "short",
                "Of prompts, those from the cache too.",
                {
                    "generated": "sum(rate(vllm:generation_tokens_total{M}[R]))",
                    "prompt": "sum(rate(vllm:prompt_tokens_total{M}[R]))",
                    "prompt, cached": "sum(rate(vllm:prompt_tokens_cached_total{M}[R]))",
                },
            ),
            Panel(
                "Prefix cache, hit rate",
                "percentunit",
                "Of the prompt tokens that were looked for.",
                {
                    "hit rate": "sum(rate(vllm:prefix_cache_hits_total{M}[R]))"
                    " / sum(rate(vllm:prefix_cache_queries_total{M}[R]))"
                },
            ),
            Panel("Tokens per step", "short", "The mean.", {"tokens": _mean("vllm:iteration_tokens_total")}),
            Panel(
                "Sizes of requests",
                "short",
                "Means.",
                {
                    "prompt tokens": _mean("vllm:request_prompt_tokens"),
                    "generated tokens": _mean("vllm:request_generation_tokens"),
                    "max_tokens": _mean("vllm:request_params_max_tokens"),
                    "n": _mean("vllm:request_params_n"),
                },
            ),
            Panel(
                "Drafts",
                "percentunit",
                "Of the draft tokens, how many were right. With --num-speculative-tokens.",
                {
                    "accepted": "sum(rate(vllm:spec_decode_num_accepted_tokens_total{M}[R]))"
                    " / sum(rate(vllm:spec_decode_num_draft_tokens_total{M}[R]))"
                },
            ),
            Panel(
                "NaN",
                "short",
                "Requests with NaN in their logits: the weights or the device are broken.",
                {"requests": "sum(increase(vllm:corrupted_requests_total{M}[R]))"},
            ),
        ],
    ),
    Row(
        "Cores",
        [
            Panel("Running", "short", "Sequences in a step.", {_CORE: "vllm:num_requests_running{M}"}),
            Panel(
                "Waiting",
                "short",
                "capacity: no room. deferred: of something else, as a grammar that is compiled.",
                {_CORE + " {{reason}}": "vllm:num_requests_waiting_by_reason{M}"},
            ),
            Panel("KV cache in use", "percentunit", "1: all of it.", {_CORE: "vllm:kv_cache_usage_perc{M}"}),
            Panel(
                "Preemptions",
                "short",
                "Per second: sequences that lost their blocks and start over. More KV cache, or fewer --max-num-seqs.",
                {_CORE: "rate(vllm:num_preemptions_total{M}[R])"},
            ),
            Panel(
                "Asleep or paused",
                "short",
                "1: it schedules nothing.",
                {
                    _CORE + " paused": "sluicegate:scheduler_paused{M}",
                    _CORE + " {{sleep_state}}": 'vllm:engine_sleep_state{M,sleep_state!="awake"}',
                },
            ),
            Panel(
                "Cores lost and replaced",
                "short",
                "Lost: went without being told to.",
                {
                    _GATEWAY + " lost": "increase(sluicegate:cores_lost_total{I}[R])",
                    _GATEWAY + " replaced": "increase(sluicegate:core_restarts_total{I}[R])",
                    _GATEWAY + " calls without a core": "sluicegate:calls_without_core{I}",
                },
            ),
            Panel(
                "Last interruption",
                "s",
                "How long the last core that was lost took to be replaced.",
                {_GATEWAY: "sluicegate:last_interruption_seconds{I}"},
            ),
            Panel(
                "Requests of lost cores",
                "short",
                "Resumed: their streams went on in another core. The others got UNAVAILABLE.",
                {
                    _GATEWAY + " resumed": "increase(sluicegate:resumed_requests_total{I}[R])",
                    _GATEWAY + " ended": "increase(sluicegate:unresumable_requests_total{I}[R])",
                },
            ),
        ],
    ),
    Row(
        "Gateways",
        [
            Panel("Processors", "short", "Busy ones.", {_GATEWAY: "rate(process_cpu_seconds_total{I}[R])"}),
            Panel("Memory", "bytes", "Resident.", {_GATEWAY: "process_resident_memory_bytes{I}"}),
            Panel(
                "Held requests",
                "bytes",
                "Of the messages that calls hold, as they came.",
                {_GATEWAY: "sluicegate:held_request_bytes{I}"},
            ),
            Panel(
                "Calls by key",
                "reqps",
                "By the name beside the key. With --api-key-file.",
                {"{{name}}": "sum by (name) (rate(sluicegate:calls_by_key_total{I}[R]))"},
            ),
            Panel(
                "The certificate is valid for",
                "s",
                "With --tls-cert.",
                {_GATEWAY: "sluicegate:tls_certificate_expiry_timestamp_seconds{I} - time()"},
            ),
            Panel(
                "Spans",
                "short",
                "Per second. With --otlp-traces-endpoint; dropped: the collector does not take them.",
                {"{{result}}": "sum by (result) (rate(sluicegate:spans_total{I}[R]))"},
            ),
            Panel(
                "Gateway processes",
                "short",
                "That serve, of --gateway-workers; and those that had to be replaced.",
                {
                    _GATEWAY: "sluicegate:gateway_processes{I}",
                    _GATEWAY + " replaced": "increase(sluicegate:gateway_worker_restarts_total{I}[R])",
                },
            ),
            Panel(
                "Unread answers",
                "bytes",
                "That wait for clients to read them.",
                {_GATEWAY: "sluicegate:unread_answer_bytes{I}"},
            ),
            Panel(
                "Slow readers",
                "short",
                "Deltas merged because a client reads too slowly, and streams cut because it does not read.",
                {
                    _GATEWAY + " merged": "rate(sluicegate:coalesced_deltas_total{I}[R])",
                    _GATEWAY + " cut": "rate(sluicegate:stalled_streams_total{I}[R])",
                },
            ),
            Panel(
                "Open files",
                "percentunit",
                "Of as many as the process may have.",
                {_GATEWAY: "process_open_fds{I} / process_max_fds{I}"},
            ),
            Panel(
                "Lag of the event loop",
                "s",
                "At worst, of late. From 0.1 s on health checks are slow, too: --gateway-workers.",
                {_GATEWAY: "sluicegate:event_loop_lag_seconds{I}"},
            ),
            Panel("Ready", "short", "1: calls are taken on.", {_GATEWAY: "sluicegate:serving{I}"}),
        ],
    ),
]
