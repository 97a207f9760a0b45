"""What the gateway takes on, and for how long."""

from dataclasses import dataclass

from core.wire.sampling_params import ALL_LOGPROBS, MAX_LOGPROBS
from service.config.timeouts import MAX_TIMEOUT_S

_MAX_FLUSH_INTERVAL_S = 10.0


@dataclass(frozen=True)
class LimitsConfig:
    """Bounds of what is taken on, and how long a drain may last."""

    max_queued_requests: int = 2048
    """Sequences at once, running and waiting together; a request counts ``n``."""
    max_queued_tokens: int = 16 * 2**20
    """In prompts and token lists of all sequences at once; a request counts its own ``n`` times."""
    drain_timeout_s: float = 30.0
    write_stall_timeout_s: float = 60.0
    """How long a stream may wait for its client to read one message."""
    max_logprobs: int = MAX_LOGPROBS
    """Most log-probabilities per token that a request may ask for; -1: those of the whole vocabulary."""
    min_flush_interval_s: float = 0.0
    """Between the messages of a stream, but for its first token and its ends: they come at once."""
    lame_duck_s: float = 0.0
    """Between NOT_SERVING and the first call that is refused, once a signal asks for the end."""

    def __post_init__(self) -> None:
        if self.max_logprobs < ALL_LOGPROBS:
            raise ValueError(f"max_logprobs must be -1 (all) or at least 0, got {self.max_logprobs}")
        if self.max_queued_requests < 1:
            raise ValueError(f"max_queued_requests must be at least 1, got {self.max_queued_requests}")
        if self.max_queued_tokens < 1:
            raise ValueError(f"max_queued_tokens must be at least 1, got {self.max_queued_tokens}")
        if not 0 < self.write_stall_timeout_s <= MAX_TIMEOUT_S:
            bounds = f"(0, {MAX_TIMEOUT_S:g}] s"
            raise ValueError(f"write_stall_timeout must be in {bounds}, got {self.write_stall_timeout_s:g}")
        if not 0 <= self.min_flush_interval_s <= _MAX_FLUSH_INTERVAL_S:
            bounds = f"[0, {_MAX_FLUSH_INTERVAL_S:g}] s"
            raise ValueError(f"min_flush_interval must be in {bounds}, got {self.min_flush_interval_s:g}")
        if not 0 <= self.drain_timeout_s <= MAX_TIMEOUT_S:
            raise ValueError(f"drain_timeout must be in [0, {MAX_TIMEOUT_S:g}] s, got {self.drain_timeout_s:g}")
        if not 0 <= self.lame_duck_s <= MAX_TIMEOUT_S:
            raise ValueError(f"lame_duck must be in [0, {MAX_TIMEOUT_S:g}] s, got {self.lame_duck_s:g}")

    @property
    def shutdown_s(self) -> float:
        """How long requests may go on after the signal."""
        return self.lame_duck_s + self.drain_timeout_s
