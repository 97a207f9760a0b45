"""What all requests of one core add up to."""

from core.wire.messages import FinishReason
from service.metrics.histogram import (
    SECONDS_PER_REQUEST,
    SECONDS_PER_TOKEN,
    SECONDS_TO_FIRST_TOKEN,
    SEQUENCES_PER_REQUEST,
    TOKENS_PER_REQUEST,
    TOKENS_PER_STEP,
    Histogram,
)
from service.metrics.recent_work import RecentWork


class RequestTotals:
    """Tokens are counted when they arrive, requests when they end."""

    def __init__(self) -> None:
        self.num_prompt_tokens = 0
        self.num_computed_tokens = 0
        self.num_cached_tokens = 0
        self.num_local_cached_tokens = 0
        self.num_external_cached_tokens = 0
        self.num_generation_tokens = 0
        self.num_corrupted = 0
        self.recent = RecentWork()
        self.num_finished = dict.fromkeys(FinishReason, 0)
        self.tokens_per_step = Histogram(TOKENS_PER_STEP)
        self.time_to_first_token_s = Histogram(SECONDS_TO_FIRST_TOKEN)
        self.inter_token_latency_s = Histogram(SECONDS_PER_TOKEN)
        self.time_per_output_token_s = Histogram(SECONDS_PER_TOKEN)
        self.e2e_s = Histogram(SECONDS_PER_REQUEST)
        self.queue_s = Histogram(SECONDS_PER_REQUEST)
        self.prefill_s = Histogram(SECONDS_PER_REQUEST)
        self.decode_s = Histogram(SECONDS_PER_REQUEST)
        self.inference_s = Histogram(SECONDS_PER_REQUEST)
        self.prompt_tokens = Histogram(TOKENS_PER_REQUEST)
        self.generation_tokens = Histogram(TOKENS_PER_REQUEST)
        self.prefill_computed_tokens = Histogram(TOKENS_PER_REQUEST)
        self.max_generation_tokens = Histogram(TOKENS_PER_REQUEST)
        self.max_tokens = Histogram(TOKENS_PER_REQUEST)
        self.n = Histogram(SEQUENCES_PER_REQUEST)
