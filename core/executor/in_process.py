"""An executor that runs the model in the core's own process.

    busy loop      load, initialize_kv_cache ─ execute_model … Future.result ─ sleep, wake_up ─ shutdown
    model thread                                  └─▶ ModelRunner.execute ──▲
    LoRA thread    load_lora: reads files, while steps run

While steps are in flight the model runner belongs to the model thread, and so does the profiler, always: it records the
thread that it was started on. Torch lets go of the interpreter while it computes, so the busy loop makes the next step
meanwhile.
"""

import functools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from core.config import ModelConfig
from core.executor.interface import MEMORY_PARTS, ModelInfo, ModelRunnerOutput, SchedulerOutput
from core.executor.memory_left import MemoryLeft
from core.executor.model_thread import ModelThread
from core.executor.profiler import Profiler
from core.executor.worker_calls import call_worker
from core.model.attention.kv_layout import KVLayout
from core.model.device import free_memory_bytes, give_back_memory
from core.model.host import own_memory_bytes
from core.model.lora.adapters import Adapters
from core.model.model import Model
from core.model.registry import load_model
from core.model.runner import ModelRunner
from core.model.step_memory import largest_step_bytes, weight_bytes_to_come
from core.model.tensor_group import TensorGroup
from core.model.threads import use_available_cpus
from core.spare_thread import submit

logger = logging.getLogger(__name__)


class InProcessExecutor:
    """Steps run one after the other; what one raised is in its future.

    ``load`` is called now, and again whenever the weights wake up. ``num_sharing`` executors share this host.
    """

    max_concurrent_batches = 2

    def __init__(
        self,
        load: Callable[[], Model],
        profiler: Profiler,
        num_sharing: int = 1,
        adapters: Adapters | None = None,
        attention_backend: str = ModelConfig.attention_backend,
    ) -> None:
        self._load = load
        self._adapters = adapters
        self._profiler = profiler
        self._num_sharing = num_sharing
        self._runner: ModelRunner | None = ModelRunner(load(), adapters, attention_backend)
        self._model_info = _describe(self._running.model)
        self._device = self._running.model.device
        self._model_thread = ModelThread(self._execute)
        self._lora_thread = ThreadPoolExecutor(1, "lora")

    @classmethod
    def load(
        cls,
        config: ModelConfig,
        profile_dir: Path | None = None,
        group: TensorGroup | None = None,
        max_lora_rank: int | None = None,
    ) -> "InProcessExecutor":
        """``group``: the ranks that share the model, if this is one of several. ``max_lora_rank`` None: no adapters.

        Raises ValueError for a setting that is not allowed, ModelLoadError for what is wrong with the files.
        """
        use_available_cpus(config.num_cores_here)
        profiler = Profiler(profile_dir, f"-rank{group.rank}" if group else "")
        adapters = None if max_lora_rank is None else Adapters(max_lora_rank)
        load = functools.partial(load_model, config, adapters, group)
        executor = cls(load, profiler, config.num_cores_here, adapters, config.attention_backend)
        if adapters is not None and adapters.num_modules == 0:
            raise ValueError("--enable-lora: the layers of this model cannot be adapted")
        return executor

    @property
    def model_info(self) -> ModelInfo:
        return self._model_info

    @property
    def memory_bytes(self) -> dict[str, int]:
        """What weights and KV cache hold."""
        return self._running.memory_bytes

    @property
    def asleep_parts(self) -> frozenset[str]:
        if self._runner is None:
            return frozenset()
        return frozenset(part for part, num_bytes in self._runner.memory_bytes.items() if num_bytes == 0)

    def memory_left(self, num_tokens: int, num_logits: int) -> MemoryLeft:
        model, on_gpu = self._running.model, self._device.type == "cuda"
        shape, element_bytes = model.architecture, model.dtype.itemsize
        is_packed = model.dtype == torch.float32 and not on_gpu and model.native_kernels is None
        return MemoryLeft.of(
            on_gpu,
            free_memory_bytes(self._device),
            self._num_sharing,
            0 if on_gpu else weight_bytes_to_come(model.num_weight_bytes, own_memory_bytes(), is_packed),
            largest_step_bytes(shape, num_tokens, num_logits, element_bytes),
            KVLayout(shape.windows, shape.max_model_len).group_size,
        )

    def initialize_kv_cache(self, num_blocks: int, block_size: int) -> None:
        needed, free = num_blocks * block_size * self._model_info.kv_bytes_per_token, free_memory_bytes(self._device)
        if needed > free:
            raise ValueError(
                f"kv_cache_memory must be at most what {self._device} has left, {free} bytes, got {needed}"
            )
        self._running.initialize_kv_cache(num_blocks, block_size)

    def execute_model(self, scheduler_output: SchedulerOutput) -> "Future[ModelRunnerOutput]":
        return self._model_thread.start(scheduler_output)

    def load_lora(self, key: int, path: str) -> "Future[None]":
        adapters = self._existing_adapters
        return submit(self._lora_thread, lambda: adapters.load(key, Path(path)))

    def unload_lora(self, key: int) -> None:
        """After the steps that were started before."""
        self._model_thread.submit(self._existing_adapters.remove, key)

    def sleep(self) -> None:
        freed, device = self.memory_bytes, self._device
        self._running.drop()
        if self._adapters is not None:
            self._lora_thread.submit(self._adapters.drop).result()
        give_back_memory(device)
        logger.info("asleep: %s freed", ", ".join(f"{n >> 20} MiB of {part}" for part, n in freed.items()))

    def wake_up(self, parts: Collection[str]) -> None:
        asleep = self.asleep_parts
        if "weights" in parts and "weights" in asleep:
            self._running.set_model(self._reload())
        if "kv_cache" in parts and "kv_cache" in asleep:
            self._running.restore_kv_cache()
        logger.info("awake: %s", ", ".join(part for part in MEMORY_PARTS if part not in self.asleep_parts) or "nothing")

    def start_profile(self, prefix: str | None, num_skipped: int, max_steps: int | None) -> None:
        self._model_thread.submit(self._profiler.start, prefix, num_skipped, max_steps).result()

    def stop_profile(self) -> None:
        self._model_thread.submit(self._profiler.stop).result()

    def collective_rpc(
        self,
        method: str,
        timeout_s: float | None,  # noqa: ARG002 - the answer is there at once
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> list[Any]:
        return [call_worker(self, method, args, kwargs)]

    def on_failure(self, callback: Callable[[], None]) -> None:
        """There is no other process that could fail; a failing step says so in its future."""

    def shutdown(self) -> None:
        """Waits for the steps in flight."""
        if self._runner is not None:
            self._lora_thread.shutdown()
            self._model_thread.submit(self._profiler.close).result()
            self._model_thread.shutdown()
        self._runner = None

    def _execute(self, work: SchedulerOutput, before_forward: Callable[[], None]) -> ModelRunnerOutput:
        with self._profiler.step():
            return self._running.execute(work, before_forward)

    @property
    def _running(self) -> ModelRunner:
        if self._runner is None:
            raise RuntimeError("the executor is shut down")
        return self._runner

    @property
    def _existing_adapters(self) -> Adapters:
        if self._adapters is None:
            raise RuntimeError("LoRA is not enabled")
        return self._adapters

    def _reload(self) -> Model:
        """The model, and its adapters. Nothing is kept of either if one of them cannot be had."""
        try:
            model = self._load()
            if (found := _describe(model)) != self._model_info:
                raise RuntimeError(f"the model's files have changed while it slept: {self._model_info} became {found}")
            if self._adapters is not None:
                self._adapters.restore()
        except BaseException:
            if self._adapters is not None:
                self._adapters.drop()
            raise
        return model


def _describe(model: Model) -> ModelInfo:
    architecture = model.architecture
    layout = KVLayout(architecture.windows, architecture.max_model_len)
    return ModelInfo(
        max_model_len=architecture.max_model_len,
        vocab_size=architecture.vocab_size,
        dtype=str(model.dtype).removeprefix("torch."),
        kv_bytes_per_token=2 * layout.group_size * architecture.kv_size * model.kv_dtype.itemsize,
        hidden_size=architecture.hidden_size,
        kv_windows=layout.windows,
    )
