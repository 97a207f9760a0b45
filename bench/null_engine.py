"""An engine without a model: what a gateway would get from a GPU, at the pace asked for.

It answers as EngineCore does (cadence, events, statistics), so that whatever sits before it cannot tell the difference.
"""

import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.aborts_queue import AbortsQueue
from core.wire.messages import (
    EngineCoreEvent,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineReadyResponse,
    EventType,
    FinishReason,
    PrefillStats,
)
from core.wire.resume import resume_of
from core.wire.stats import SchedulerStats

BLOCK_SIZE = 16
NUM_BLOCKS = 65_536
MAX_NUM_SEQS = 65_536
"""It says so because it must say a number: there is no limit."""
_UTILITIES: dict[str, Any] = {
    "get_supported_tasks": ["generate"],
    "reset_mm_cache": None,
    "reset_prefix_cache": True,
    "is_sleeping": False,
    "sleep": None,
    "wake_up": True,
    "add_lora": True,
    "remove_lora": True,
    "is_scheduler_paused": False,
}
Outputs = dict[int, EngineCoreOutputs]


@dataclass(frozen=True)
class NullEngineConfig:
    """``tokens_per_second`` is of each stream; 0 = as fast as it can. ``token_ids`` are what it says, over and over."""

    token_ids: Sequence[int] = range(1000)
    tokens_per_second: float = 0.0
    max_model_len: int = 8192
    step_log: Path | None = None
    """Where the monotonic time of every step is written, as float64 of this machine, for who measures what follows."""

    def __post_init__(self) -> None:
        if not self.token_ids:
            raise ValueError("token_ids must not be empty")


@dataclass
class NullRequest:
    """A request and how far it has come. ``num_tokens`` counts prompt and output."""

    request_id: str
    client_index: int
    num_prompt_tokens: int
    max_num_tokens: int
    num_tokens: int = 0
    queued_at: float = field(default_factory=time.monotonic)


class NullEngine:
    """Every step gives every request one token, so a stream's rate does not depend on how many there are.

    The token at a position depends on the position alone: a request resubmitted with what it got goes on the same.
    """

    def __init__(self, config: NullEngineConfig | None = None) -> None:
        self._config = config or NullEngineConfig()
        self._requests: dict[str, NullRequest] = {}
        self._has_unreported_finish = False
        self._step_s = 1 / self._config.tokens_per_second if self._config.tokens_per_second else 0.0
        self._next_step_at = 0.0
        self._step_log = self._config.step_log.open("wb", buffering=0) if self._config.step_log else None
        self.lockstep = None
        self.aborts_queue = AbortsQueue()
        self.ready_response = EngineReadyResponse(
            max_model_len=self._config.max_model_len,
            num_gpu_blocks=NUM_BLOCKS,
            block_size=BLOCK_SIZE,
            dtype="float32",
            vllm_version="0.25.1",
            kv_cache_size_tokens=NUM_BLOCKS * BLOCK_SIZE,
            kv_cache_max_concurrency=NUM_BLOCKS * BLOCK_SIZE / self._config.max_model_len,
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=MAX_NUM_SEQS * self._config.max_model_len,
            resume_key="null",
        )

    def preprocess_add_request(self, message: EngineCoreRequest) -> NullRequest:
        """Raises ValueError for a request without a prompt, without sampling parameters, or too long."""
        prompt = message.prompt_token_ids or () if message.prompt_embeds is None else message.prompt_embeds.array
        num_prompt_tokens, limit = len(prompt), self._config.max_model_len
        if not 1 <= num_prompt_tokens < limit:
            raise ValueError(f"prompt_token_ids must hold 1 to {limit - 1} tokens, got {num_prompt_tokens}")
        if message.sampling_params is None:
            raise ValueError("sampling_params must be set")
        max_tokens = message.sampling_params.max_tokens
        if max_tokens is not None:
            if max_tokens < 1:
                raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
            limit = min(limit, num_prompt_tokens + max_tokens)
        resume = resume_of(message.sampling_params)
        num_tokens = num_prompt_tokens + len(resume.output_token_ids) if resume and resume.output_token_ids else 0
        return NullRequest(message.request_id, message.client_index, num_prompt_tokens, limit, num_tokens)

    def add_request(self, request: NullRequest) -> None:
        """Raises ValueError if a live request has the same id."""
        if request.request_id in self._requests:
            raise ValueError(f"request_id {request.request_id!r} is that of a live request")
        self._requests[request.request_id] = request

    def abort_requests(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            if self._requests.pop(request_id, None):
                self._has_unreported_finish = True

    def abort_all(self, client_index: int | None = None) -> Outputs:
        outputs: Outputs = {}
        for request in [r for r in self._requests.values() if client_index in (None, r.client_index)]:
            del self._requests[request.request_id]
            message = outputs.setdefault(request.client_index, EngineCoreOutputs())
            message.outputs.append(EngineCoreOutput(request.request_id, [], finish_reason=FinishReason.ABORT))
        for message in outputs.values():
            message.finished_requests = [output.request_id for output in message.outputs]
        return outputs

    def has_requests(self) -> bool:
        return bool(self._requests) or self._has_unreported_finish

    def num_unfinished_requests(self) -> int:
        return len(self._requests)

    def request_counts(self) -> tuple[int, int]:
        return 0, len(self._requests)

    def step(self) -> tuple[Outputs, bool]:
        """One token for each request, unless it is too early; after the last finish, the statistics alone."""
        # These come through the input queue too, in order with a later request of the same id.
        self.aborts_queue.take()
        if not self._requests:
            self._has_unreported_finish = False
            return {0: EngineCoreOutputs(scheduler_stats=SchedulerStats(), timestamp=time.monotonic())}, False
        now = time.monotonic()
        if now < self._next_step_at:
            return {}, False
        # Counted from the planned time, so that lateness does not add up; from now, after a pause.
        is_late_by_a_step = now - self._next_step_at > self._step_s
        self._next_step_at = self._step_s + (now if is_late_by_a_step else self._next_step_at)
        return self._generate(now), True

    def on_progress(self, callback: Callable[[], None]) -> None:
        """Nothing here waits for anything but input."""

    def call_utility(self, method: str, args: list[Any]) -> Any:
        """The result of one of the few calls that front ends make. Raises ValueError for another."""
        if method not in _UTILITIES:
            raise ValueError(f"Call to {method} method failed: unknown method, arguments {args}")
        return _UTILITIES[method]

    def check_integrity(self) -> None:
        """Nothing to leak: it has no blocks."""

    def reset(self) -> None:
        """Nothing to forget."""

    def shutdown(self) -> None:
        """There is no memory to free."""
        if self._step_log is not None:
            self._step_log.close()

    def _generate(self, now: float) -> Outputs:
        if self._step_log is not None:
            self._step_log.write(struct.pack("d", now))
        outputs: Outputs = {}
        for request in list(self._requests.values()):
            message = outputs.setdefault(request.client_index, EngineCoreOutputs(timestamp=now))
            message.outputs.append(self._extend(request, now))
        stats_receiver = next(iter(outputs.values()))
        stats_receiver.scheduler_stats = SchedulerStats(num_running_reqs=len(self._requests))
        return outputs

    def _extend(self, request: NullRequest, now: float) -> EngineCoreOutput:
        is_first = request.num_tokens == 0
        request.num_tokens = max(request.num_tokens, request.num_prompt_tokens)
        token_id = self._config.token_ids[request.num_tokens % len(self._config.token_ids)]
        request.num_tokens += 1
        output = EngineCoreOutput(request.request_id, [token_id])
        if is_first:
            output.events = [
                EngineCoreEvent(EventType.QUEUED, request.queued_at),
                EngineCoreEvent(EventType.SCHEDULED, now),
            ]
            output.prefill_stats = PrefillStats(request.num_prompt_tokens, request.num_prompt_tokens)
        if request.num_tokens == request.max_num_tokens:
            output.finish_reason = FinishReason.LENGTH
            del self._requests[request.request_id]
            self._has_unreported_finish = True
        return output
