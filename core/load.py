"""From settings to an engine. torch is imported here, and only where there is no rank process to have it."""

import contextlib
import gc
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from core.config import CacheConfig, KVEventsConfig, LoraConfig, ModelConfig, SchedulerConfig
from core.engine import EngineCore
from core.engine_interface import Engine
from core.hosts import ALONE, Hosts
from core.kv_event_publisher import KVEventPublisher
from core.native import find_kernels
from core.structured_output.grammars import Grammars
from core.wire.messages import EngineReadyResponse, ParallelConfig

if TYPE_CHECKING:
    from core.executor.interface import Executor

logger = logging.getLogger(__name__)

_SPINS = "5000"
"""About 50 microseconds, where libgomp takes milliseconds."""


def load_engine(
    model: ModelConfig,
    cache: CacheConfig,
    scheduler: SchedulerConfig,
    _parallel_config: ParallelConfig,
    on_failure: Callable[[], None],
    hosts: Hosts = ALONE,
    profile_dir: Path | None = None,
    kv_events: KVEventsConfig | None = None,
    lora: LoraConfig | None = None,
) -> Engine:
    """Load the model and build the engine around it. Raises ValueError for a setting that the model rules out."""
    if hosts.tensor_parallel_size == 1:  # With several, it is the ranks that have torch, and look at the model.
        _import_torch()
        from core.embedding.load import holds_embedding_model, load_embedding_engine

        if holds_embedding_model(model.path):
            _check_embeds(kv_events, lora)
            return load_embedding_engine(model, scheduler)
    with contextlib.ExitStack() as on_error:
        publisher = None
        if kv_events is not None:
            publisher = KVEventPublisher(kv_events, on_failure)
            on_error.callback(publisher.close)
        executor = _load_executor(model, hosts, profile_dir, lora)
        on_error.callback(executor.shutdown)
        executor.on_failure(on_failure)
        max_model_len = model.max_model_len or executor.model_info.max_model_len
        grammars = Grammars(model.tokenizer_folder, executor.model_info.vocab_size)
        on_error.callback(grammars.close)
        if model.preload_vocabulary:
            grammars.preload()
        engine = EngineCore(
            executor, cache, scheduler, max_model_len, model.seed, publisher, lora, model.max_logprobs, grammars
        )
        on_error.pop_all()
    num_ranks = hosts.tensor_parallel_size
    engine.ready_response = msgspec.structs.replace(
        engine.ready_response,
        world_size=num_ranks,
        tensor_parallel_size=num_ranks,
        resume_key=f"{engine.ready_response.resume_key} {_arithmetic(model)} {_sizes_of(model.path)}",
    )
    _log_sizes(engine.ready_response, model.device, cache.enable_prefix_caching)
    return engine


def _import_torch() -> None:
    """For good: the garbage collector, which would walk 250,000 objects again and again, gets to see none of them.

    Its threads spin for more work when they have none: for the next operation, but not into the time of our kernels.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    gc.disable()
    try:
        import core.executor.in_process  # noqa: F401
    finally:
        gc.enable()
    gc.freeze()


def _arithmetic(model: ModelConfig) -> str:
    """What decides a token's bits beside the model: other instructions add up in another order."""
    kernels = find_kernels(model.kernels) if model.device == "cpu" else None
    return f"quantization={model.quantization} kernels={kernels.__name__ if kernels else 'torch'}"


def _sizes_of(path: Path) -> list[int]:
    """Of the model's files, in bytes: what tells one model from another of the same shape, at a glance."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return [file.stat().st_size for file in files if file.suffix in (".gguf", ".safetensors", ".json")]


def _check_embeds(kv_events: KVEventsConfig | None, lora: LoraConfig | None) -> None:
    if lora is not None:
        raise ValueError("--enable-lora: an embedding model runs without adapters")
    if kv_events is not None:
        raise ValueError(f"--kv-events-endpoint {kv_events.endpoint}: an embedding model has no KV cache")


def _load_executor(model: ModelConfig, hosts: Hosts, profile_dir: Path | None, lora: LoraConfig | None) -> "Executor":
    """In processes of their own if there are several ranks."""
    max_lora_rank = None if lora is None else lora.max_lora_rank
    if hosts.tensor_parallel_size > 1:
        from core.executor.multi_process import MultiProcessExecutor

        return MultiProcessExecutor(model, hosts, profile_dir, max_lora_rank)
    from core.executor.in_process import InProcessExecutor

    return InProcessExecutor.load(model, profile_dir, max_lora_rank=max_lora_rank)


def _computed_by(num_ranks: int) -> str:
    if num_ranks > 1:
        return f"{num_ranks} ranks"
    from core.model.threads import num_threads  # Not where ranks have torch for us.

    return f"{num_threads()} threads"


def _log_sizes(sizes: EngineReadyResponse, device: str, caches_prefixes: bool) -> None:
    logger.info(
        "the engine: prefix caching %s; %s on %s, %s; max_model_len %d, max_num_seqs %s, max_num_batched_tokens %s",
        *("on" if caches_prefixes else "off", sizes.dtype, device, _computed_by(sizes.world_size)),
        *(sizes.max_model_len, sizes.max_num_seqs, sizes.max_num_batched_tokens),
    )
