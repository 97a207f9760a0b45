"""Requests and engines for tests, with everything defaulted that a test does not speak of."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from core.busy_loop import NOTHING_RAN_SLEEP_S
from core.config import CacheConfig, LoraConfig, SchedulerConfig, SchedulingPolicy, SpeculationConfig
from core.engine import EngineCore
from core.executor.fake import FAKE_MODEL, FakeExecutor, fake_next_token
from core.kv_events import KVEventSink
from core.request import Request
from core.request_limits import RequestLimits
from core.scheduler import Outputs
from core.structured_output.grammars import Grammars
from core.wire.messages import EngineCoreOutput, EngineCoreRequest
from core.wire.sampling_params import SamplingParams

VOCAB_SIZE = FAKE_MODEL.vocab_size
LIMITS = RequestLimits(64, VOCAB_SIZE, max_cached_tokens=48, hidden_size=FAKE_MODEL.hidden_size)


def make_message(
    request_id: str = "r", prompt: Sequence[int] = (1, 2, 3), params: SamplingParams | None = None, **fields: Any
) -> EngineCoreRequest:
    """An ADD. ``fields`` replaces any field of it."""
    values: dict[str, Any] = {
        "request_id": request_id,
        "prompt_token_ids": list(prompt),
        "mm_features": None,
        "sampling_params": params or SamplingParams(),
        "pooling_params": None,
        "arrival_time": 0.0,
        "lora_request": None,
        "cache_salt": None,
        "data_parallel_rank": None,
    }
    return EngineCoreRequest(**(values | fields))


def make_request(
    request_id: str = "r", prompt: Sequence[int] = (1, 2, 3), max_num_tokens: int = 64, **params: Any
) -> Request:
    message = make_message(request_id, prompt)
    return Request(message, SamplingParams(**params), engine_seed=0, max_num_tokens=max_num_tokens)


def make_engine(
    num_blocks: int = 65,
    block_size: int = 4,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 64,
    max_model_len: int = 64,
    enable_prefix_caching: bool = True,
    async_scheduling: bool = False,
    scheduling_policy: SchedulingPolicy = "fcfs",
    num_speculative_tokens: int = 0,
    max_itl_stretch: float = 2.5,
    executor: FakeExecutor | None = None,
    kv_events: KVEventSink | None = None,
    lora: LoraConfig | None = None,
    grammars: Grammars | None = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> EngineCore:
    """``clock``: by default steps take no time, and how long they take plays no part."""
    memory = num_blocks * block_size * FAKE_MODEL.kv_bytes_per_token
    engine = EngineCore(
        executor or FakeExecutor(),
        CacheConfig(block_size, memory, enable_prefix_caching),
        SchedulerConfig(
            max_num_seqs,
            max_num_batched_tokens,
            async_scheduling,
            scheduling_policy,
            SpeculationConfig(num_speculative_tokens, prompt_lookup_max=4, prompt_lookup_min=1),
            max_itl_stretch,
        ),
        max_model_len,
        kv_events=kv_events,
        lora=lora,
        grammars=grammars,
        clock=clock,
    )
    MADE.append(engine)
    return engine


MADE: list[EngineCore] = []
"""By the test that runs: it ends with a look whether they have lost anything."""


def give_up(engine: EngineCore) -> None:
    """It was broken on purpose."""
    MADE.remove(engine)


def add(
    engine: EngineCore, request_id: str = "r", prompt: Sequence[int] = (1, 2, 3), *, priority: int = 0, **params: Any
) -> None:
    message = make_message(request_id, prompt, SamplingParams(**params), priority=priority)
    engine.add_request(engine.preprocess_add_request(message))


def add_for_client(
    engine: EngineCore, request_id: str, client_index: int, prompt: Sequence[int] = (1, 2, 3), **params: Any
) -> None:
    message = make_message(request_id, prompt, SamplingParams(**params), client_index=client_index)
    engine.add_request(engine.preprocess_add_request(message))


def step(engine: EngineCore) -> dict[str, EngineCoreOutput]:
    """One step, checked for leaks; its outputs by request id."""
    outputs, _ = engine.step()
    engine.scheduler.check_integrity()
    return flatten([outputs])


def flatten(steps: Iterable[Outputs]) -> dict[str, EngineCoreOutput]:
    """The last output of each request in ``steps``."""
    return {
        output.request_id: output for outputs in steps for message in outputs.values() for output in message.outputs
    }


def run_to_end(engine: EngineCore, max_steps: int = 1000) -> dict[str, list[EngineCoreOutput]]:
    """Step until nothing is left to do; every request's outputs in order."""
    received: dict[str, list[EngineCoreOutput]] = {}
    for _ in range(max_steps):
        if not engine.has_requests():
            return received
        outputs, has_run = engine.step()
        engine.scheduler.check_integrity()
        for request_id, output in flatten([outputs]).items():
            received.setdefault(request_id, []).append(output)
        if not has_run:  # As the busy loop does: an adapter may be loading on a thread.
            time.sleep(NOTHING_RAN_SLEEP_S)
    raise AssertionError(f"still busy after {max_steps} steps: {engine.scheduler}")


def tokens_of(outputs: Iterable[EngineCoreOutput]) -> list[int]:
    return [token_id for output in outputs for token_id in output.new_token_ids]


def expected_tokens(prompt: Sequence[int], count: int, vocab_size: int = VOCAB_SIZE) -> list[int]:
    """What the fake model answers to ``prompt`` when nothing disturbs it."""
    token_ids = list(prompt)
    for _ in range(count):
        token_ids.append(fake_next_token(token_ids, vocab_size))
    return token_ids[len(prompt) :]
