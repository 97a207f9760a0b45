"""EngineCore: requests in, one model step at a time, outputs out.

       input thread                                   busy loop
    ┌────────────────────────┐       ┌──────────────────────────────────────────────────┐
    │ preprocess_add_request │─Req.─▶│ add_request   abort_requests   call_utility      │
    │ (checks, hashes)       │       │ step():                                          │
    │                        │       │   schedule ─▶ start ─▶ wait ─▶ aborts ─▶ update  │─▶ EngineCoreOutputs
    │ aborts_queue.put ──────│───────│───────────────│────────┴───────┘                 │   by client index
    └────────────────────────┘       └───────────────▼──────────────────────────────────┘
                                      executor: one step after another, at most two in flight

``preprocess_add_request`` reads nothing that changes after construction; both threads touch ``aborts_queue`` alone.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from core.aborts_queue import AbortsQueue
from core.batch_queue import BatchQueue
from core.block_hash import BlockHasher, seed_from
from core.config import CacheConfig, LoraConfig, SchedulerConfig
from core.data_parallel.engine_part import LockstepPart
from core.executor.interface import Executor
from core.kv_cache import KVCache
from core.kv_cache_size import KVCacheSize
from core.kv_events import KVEventLog, KVEventSink
from core.kv_group import KVGroup
from core.lora.loras import Loras
from core.request import Request
from core.request_limits import RequestError, RequestLimits, check_request
from core.scheduler import Outputs, Scheduler
from core.step_pace import StepPace
from core.structured_output.grammars import Grammars
from core.utilities import Utilities
from core.wire.messages import EngineCoreRequest, EngineReadyResponse
from core.wire.sampling_params import MAX_LOGPROBS, Violation
from core.wire.version import WireVersion

logger = logging.getLogger(__name__)


class EngineCore:
    """Owns the scheduler, the KV cache and the executor it is given.

    Raises ValueError if the memory for the KV cache holds no block.
    """

    def __init__(
        self,
        executor: Executor,
        cache_config: CacheConfig,
        scheduler_config: SchedulerConfig,
        max_model_len: int,
        seed: int = 0,
        kv_events: KVEventSink | None = None,
        lora: LoraConfig | None = None,
        max_logprobs: int = MAX_LOGPROBS,
        grammars: Grammars | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``lora`` None: without adapters. ``clock``: what steps are timed by, in seconds."""
        num_batches = _count_batches(executor, scheduler_config)
        groups = [
            KVGroup(index, window, cache_config.block_size, num_batches * scheduler_config.max_num_batched_tokens)
            for index, window in enumerate(executor.model_info.kv_windows)
        ]
        size = _size_kv_cache(executor, cache_config, groups, scheduler_config, max_model_len)
        executor.initialize_kv_cache(size.num_blocks, cache_config.block_size)
        self._executor = executor
        self._seed = seed
        self._hasher = _make_hasher(cache_config) if cache_config.enable_prefix_caching else None
        vocab_size = executor.model_info.vocab_size
        self._limits = RequestLimits(
            *(max_model_len, vocab_size, size.max_request_tokens, executor.model_info.hidden_size),
            has_loras=lora is not None,
            max_logprobs=max_logprobs,
        )
        self._kv_events = kv_events
        self._grammars = grammars
        event_log = KVEventLog(cache_config.block_size, kv_events.publish) if kv_events else None
        kv_cache = KVCache(size.num_blocks, cache_config.block_size, self._hasher, event_log, groups)
        loras = Loras(lora, executor) if lora is not None else None
        self._pace = StepPace(scheduler_config.max_itl_stretch)
        self.scheduler = Scheduler(scheduler_config, kv_cache, vocab_size, self._pace, loras)
        self._batch_queue = BatchQueue(executor, num_batches, clock)
        self._utilities = Utilities(self.scheduler, executor)
        self.lockstep: LockstepPart | None = None
        if executor.model_info.needs_lockstep:
            self.lockstep = LockstepPart(self.scheduler, executor, self._utilities)
        self.aborts_queue = AbortsQueue()
        self.ready_response = _make_ready_response(
            executor, size, cache_config.block_size, max_model_len, scheduler_config, lora
        )
        self.ready_response.resume_key = f"{executor.model_info} seed={seed}"

    def preprocess_add_request(self, message: EngineCoreRequest) -> Request:
        """The checked request, the blocks of its prompt hashed. For the input thread. Raises RequestError.

        What is computed with an adapter is named after its load, of which only the busy loop knows.
        """
        params = check_request(message, self._limits)
        if params.structured_outputs is not None and self._grammars is None:
            raise RequestError(Violation("structured_outputs", "is not supported: this engine has no tokenizer"))
        request = Request(message, params, self._seed, self._limits.max_num_tokens)
        if self._hasher is not None and message.lora_request is None:
            request.cache_root = self._hasher.root(message.cache_salt)
            self._hasher.extend(request.block_hashes, request.cache_root, request.token_ids, request.embeds)
        return request

    def add_request(self, request: Request) -> None:
        """Queue ``request``. Raises RequestError if a live request has its id."""
        self.scheduler.add_request(request)
        try:
            self._prepare(request)
        except BaseException:  # Whoever sent it is told so, and must not get its tokens besides.
            self.scheduler.abort_requests([request.request_id])
            raise
        if request.abort_immediately:
            self.scheduler.abort_requests([request.request_id])

    def abort_requests(self, request_ids: list[str]) -> None:
        """Drop these requests without an output; unknown and finished ones are ignored."""
        self.scheduler.abort_requests(request_ids)

    def abort_all(self, client_index: int | None = None) -> Outputs:
        """End every request, or every one of a client, as ABORT; the final outputs by client index."""
        return self.scheduler.abort_all(client_index)

    def has_requests(self) -> bool:
        """Whether ``step`` would do anything. Requests frozen by a pause do not count: ``abort_all`` ends them."""
        return self.scheduler.has_work() or self._utilities.is_pausing

    def num_unfinished_requests(self) -> int:
        """Waiting and running requests, frozen ones too."""
        return len(self.scheduler.requests)

    def request_counts(self) -> tuple[int, int]:
        """Waiting and running requests."""
        return len(self.scheduler.waiting) + len(self.scheduler.held), len(self.scheduler.running)

    def step(self) -> tuple[Outputs, bool]:
        """Start what is due and end the oldest step: its messages by client index, and whether it computed a token."""
        # Those of before the step come through the input queue too, in order with a later request of the same id.
        self.aborts_queue.take()
        self._start_due_steps()
        if not self._batch_queue:
            if not self.scheduler.has_work():  # else a grammar does not know yet what may come next
                self._utilities.settle_pauses()
            return {}, False
        step, result, seconds = self._batch_queue.wait_for_oldest()
        self._pace.observe(step.num_decode_tokens, step.num_prefill_tokens, seconds)
        self.scheduler.abort_requests(self.aborts_queue.take())
        return self.scheduler.update_from_output(step, result), bool(step.shares)

    def on_progress(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called, from any thread, when a request's grammar is compiled."""
        if self._grammars is not None:
            self._grammars.on_done = callback

    def call_utility(self, method: str, args: list[Any]) -> Any:
        """The result of a utility, or a Future of it that later steps complete. Raises UtilityError."""
        return self._utilities.call(method, args)

    def check_integrity(self) -> None:
        """Raises RuntimeError, with the numbers, if a block or a request has leaked."""
        self.scheduler.check_integrity()

    def reset(self) -> None:
        """Forget whom it has served: for an engine without requests."""
        self._utilities.reset()
        while self.has_requests():
            self.step()

    def shutdown(self) -> None:
        self._executor.shutdown()
        if self._grammars is not None:
            self._grammars.close()
        if self._kv_events is not None:
            self._kv_events.close()

    def _prepare(self, request: Request) -> None:
        if self._hasher is not None and request.adapter is not None:
            request.cache_root = self._hasher.root(request.cache_salt, request.adapter.cache_name)
        asked = request.sampling_params.structured_outputs
        if asked is not None and self._grammars is not None:
            self.scheduler.hold(request, self._grammars.constrain(request, asked))

    def _start_due_steps(self) -> None:
        if self._grammars is not None:
            self._grammars.wait_for_masks()
        while self._batch_queue.has_room and (step := self.scheduler.schedule()) is not None:
            if step.constrained and self._grammars is not None:
                step.work.grammar_bitmask = self._grammars.mask(step.constrained)
            self._batch_queue.start(step)


def _make_hasher(config: CacheConfig) -> BlockHasher:
    return BlockHasher(config.block_size, seed_from(config.hash_seed))


def _size_kv_cache(
    executor: Executor, config: CacheConfig, groups: Sequence[KVGroup], scheduler: SchedulerConfig, max_model_len: int
) -> KVCacheSize:
    """Raises ValueError if the memory is too little, or not there."""
    num_logits = min(
        scheduler.max_num_seqs * (1 + scheduler.speculation.num_speculative_tokens), scheduler.max_num_batched_tokens
    )
    left = executor.memory_left(scheduler.max_num_batched_tokens, num_logits)
    num_bytes = left.kv_cache_bytes if config.kv_cache_memory_bytes is None else config.kv_cache_memory_bytes
    block_bytes = config.block_size * executor.model_info.kv_bytes_per_token
    size = KVCacheSize(num_bytes, block_bytes, groups, scheduler.max_num_seqs, max_model_len)
    if size.num_bytes > left.most_bytes:
        raise ValueError(f"kv_cache_memory must be at most {left.most_bytes} bytes ({left}), got {size.num_bytes}")
    logger.info(
        "the KV cache: %d blocks of %d tokens, %d tokens in all, %d MiB, groups of layers: %d, of %d bytes a token; "
        "memory: %s",
        *(size.num_blocks, config.block_size, size.num_tokens, size.num_bytes >> 20),
        *(len(groups), executor.model_info.kv_bytes_per_token, left),
    )
    if (longest := size.max_request_tokens) < max_model_len:
        logger.warning("the KV cache holds %d tokens: no request reaches max_model_len %d", longest, max_model_len)
    return size


def _count_batches(executor: Executor, config: SchedulerConfig) -> int:
    """How many steps may be in flight. Ranks in lockstep take them one by one: all count the same steps."""
    takes_several = config.async_scheduling and not executor.model_info.needs_lockstep
    return executor.max_concurrent_batches if takes_several else 1


def _make_ready_response(
    executor: Executor,
    size: KVCacheSize,
    block_size: int,
    max_model_len: int,
    scheduler: SchedulerConfig,
    lora: LoraConfig | None,
) -> EngineReadyResponse:
    """Sizes as vLLM computes them, over all ``num_blocks``, the null block included."""
    return EngineReadyResponse(
        max_model_len=max_model_len,
        num_gpu_blocks=size.num_blocks,
        block_size=block_size,
        dtype=executor.model_info.dtype,
        vllm_version=WireVersion.V0_25.vllm_version,
        kv_cache_size_tokens=size.num_tokens,
        kv_cache_max_concurrency=size.max_concurrency,
        enable_sleep_mode=True,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        supports_lora=lora is not None,
        max_loras=lora.max_loras if lora is not None else 0,
    )
