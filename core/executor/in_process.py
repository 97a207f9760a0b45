"""An executor that runs the model in the core's own process, on the busy-loop thread."""

from collections.abc import Callable
from concurrent.futures import Future

from core.config import ModelConfig
from core.executor.interface import ModelInfo, ModelRunnerOutput, SchedulerOutput
from core.model.device import free_memory_bytes
from core.model.registry import load_model
from core.model.runner import ModelRunner
from core.model.threads import use_available_cpus

_MAX_KV_CACHE_BYTES = 4 << 30


class InProcessExecutor:
    """A step has run when ``execute_model`` returns; what it raised is in the future."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner: ModelRunner | None = runner
        self._model_info = _describe(runner)

    @classmethod
    def load(cls, config: ModelConfig) -> "InProcessExecutor":
        """Raises ValueError for a setting that is not allowed, ModelLoadError for what is wrong with the files."""
        use_available_cpus()
        return cls(ModelRunner(load_model(config)))

    @property
    def model_info(self) -> ModelInfo:
        return self._model_info

    def available_kv_cache_bytes(self) -> int:
        """On a GPU most of what is left there; else half of what the machine has left, at most 4 GiB."""
        device = self._running.model.device
        free = free_memory_bytes(device)
        return free * 9 // 10 if device.type == "cuda" else min(free // 2, _MAX_KV_CACHE_BYTES)

    def initialize_kv_cache(self, num_blocks: int, block_size: int) -> None:
        self._running.initialize_kv_cache(num_blocks, block_size)

    def execute_model(self, scheduler_output: SchedulerOutput) -> "Future[ModelRunnerOutput]":
        future: Future[ModelRunnerOutput] = Future()
        try:
            future.set_result(self._running.execute(scheduler_output))
        except Exception as exc:
            future.set_exception(exc)
        return future

    def on_failure(self, callback: Callable[[], None]) -> None:
        """There is no other process that could fail; a failing step says so in its future."""

    def shutdown(self) -> None:
        self._runner = None

    @property
    def _running(self) -> ModelRunner:
        if self._runner is None:
            raise RuntimeError("the executor is shut down")
        return self._runner


def _describe(runner: ModelRunner) -> ModelInfo:
    architecture = runner.model.architecture
    return ModelInfo(
        max_model_len=architecture.max_model_len,
        vocab_size=architecture.vocab_size,
        dtype=str(runner.model.dtype).removeprefix("torch."),
        kv_bytes_per_token=2 * architecture.num_layers * architecture.kv_size * runner.model.dtype.itemsize,
        hidden_size=architecture.hidden_size,
    )
