"""What a front end may call on the engine between two steps. What is not listed here cannot be called.

Named and typed as vLLM's EngineCore has them, because genuine front ends call these.
"""

from concurrent.futures import Future
from typing import Any

from core.executor.interface import Executor, SchedulerOutput
from core.lora.loras import Loras
from core.pause_state import PauseMode
from core.pauses import Pauses
from core.scheduler import Scheduler
from core.sleep import Sleep, WakeTag
from core.utility_table import UtilityTable, shortened
from core.wire.messages import LoRARequest
from core.wire.version import ResultByVersion


class Utilities(UtilityTable):
    """The methods named in ``METHODS``, called by the busy loop between steps."""

    METHODS = (
        "add_lora",
        "collective_rpc",
        "execute_dummy_batch",
        "get_kv_cache_group_metadata",
        "get_supported_tasks",
        "is_scheduler_paused",
        "is_sleeping",
        "list_loras",
        "pause_generation",
        "pause_scheduler",
        "pin_lora",
        "profile",
        "remove_lora",
        "reset_encoder_cache",
        "reset_mm_cache",
        "reset_prefix_cache",
        "resume_scheduler",
        "sleep",
        "wake_up",
    )

    def __init__(self, scheduler: Scheduler, executor: Executor) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._pauses = Pauses(scheduler)
        self._sleep = Sleep(scheduler, executor, self._pauses)

    @property
    def is_pausing(self) -> bool:
        """Whether a pause, or a sleep, is not answered yet."""
        return self._pauses.is_pausing

    def settle_pauses(self) -> None:
        """Answer the pauses. Called when there is no work, and all outputs of earlier steps are on their way."""
        self._pauses.settle()

    def reset(self) -> None:
        """Be as after the start: awake, without adapters, and nothing cached."""
        self.wake_up()
        if (loras := self._scheduler.loras) is not None:
            loras.remove_all()
        self.reset_prefix_cache(reset_running_requests=True)

    def get_supported_tasks(self) -> list[str]:
        return ["generate"]

    def get_kv_cache_group_metadata(self) -> list[dict[str, Any]]:
        block_size = self._scheduler.kv_cache.block_size
        return [
            {"group_idx": group.index, "kind": group.kind, "block_size": block_size, "sliding_window": group.window}
            for group in self._scheduler.kv_cache.groups
        ]

    def reset_mm_cache(self) -> None:
        """Nothing to do: there is no multimodal input."""

    def reset_encoder_cache(self) -> None:
        """Nothing to do: there is no encoder."""

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:  # noqa: ARG002
        """Whether every cached prefix was forgotten. There is no connector whose cache could go with it."""
        return self._scheduler.reset_prefix_cache(reset_running_requests)

    def execute_dummy_batch(self) -> None:
        """An empty step."""
        self._sleep.check_awake()
        self._executor.execute_model(SchedulerOutput([], [], {}, [])).result()

    def is_scheduler_paused(self) -> bool:
        return self._scheduler.is_paused

    def pause_scheduler(self, mode: PauseMode = "abort", clear_cache: bool = True) -> Future[None]:
        """Stop, answered once idle: "abort" everything, "wait" for what runs, or "keep" it frozen."""
        return self._pauses.pause(mode, self._clear_caches if clear_cache else lambda: None)

    def pause_generation(self, mode: PauseMode = "abort", clear_cache: bool = True) -> Future[None]:
        """``pause_scheduler`` in the words of vLLM 0.33."""
        return self.pause_scheduler(mode, clear_cache)

    def resume_scheduler(self) -> None:
        """Schedule again, unless asleep. Pauses that were not answered yet fail."""
        self._sleep.check_awake()
        self._pauses.resume()

    def sleep(self, level: int = 1, mode: PauseMode = "abort") -> Future[None]:
        """Pause; from level 1 on, free the memory of weights and KV cache too. Answered when that is done."""
        return self._sleep.sleep(level, mode)

    def wake_up(self, tags: list[WakeTag] | None = None) -> ResultByVersion:
        """Take back the memory of ``tags``, None = all; schedule again once nothing is asleep any more."""
        self._sleep.wake_up(tags)
        return ResultByVersion(in_0_25=None, in_0_33=True)

    def is_sleeping(self) -> bool:
        """As vLLM has it, a paused engine counts as asleep."""
        return self._scheduler.is_paused or self._sleep.is_asleep

    def profile(
        self,
        is_start: bool = True,
        prefix: str | None = None,
        delay_iterations: int | None = None,
        max_iterations: int | None = None,
        profiler_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Start or end a profile of the steps. Newer front ends send all five arguments, the last one empty."""
        if profiler_kwargs:
            raise ValueError(f"profiler_kwargs must be empty, got {shortened(profiler_kwargs)}")
        if is_start:
            self._executor.start_profile(prefix, delay_iterations or 0, max_iterations)
        else:
            self._executor.stop_profile()

    def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: list[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> list[Any]:
        """What each worker answers. They have their own list of what may be called."""
        return self._executor.collective_rpc(method, timeout, args or [], kwargs or {})

    def list_loras(self) -> list[int]:
        """The ids of those that are loaded."""
        return self._scheduler.loras.ids if self._scheduler.loras is not None else []

    def add_lora(self, lora_request: LoRARequest) -> Future[bool]:
        """Load an adapter, beside the steps; answered when requests can run with it."""
        loras = self._loras(f"cannot add {shortened(lora_request.lora_name)}")
        self._sleep.check_awake()
        if lora_request.lora_int_id < 1:
            raise ValueError(f"lora_int_id must be at least 1, got {lora_request.lora_int_id}")
        return loras.add(lora_request)

    def remove_lora(self, lora_id: int) -> Future[bool] | bool:
        """Unload it once its last request has ended. False if there is none of that id."""
        return self._loras(f"there is no adapter {shortened(lora_id)} to remove").remove(lora_id)

    def pin_lora(self, lora_id: int) -> bool:
        """Keep it in memory, however many others come."""
        return self._loras(f"there is no adapter {shortened(lora_id)} to pin").pin(lora_id)

    def _loras(self, complaint: str) -> Loras:
        if self._scheduler.loras is None:
            raise RuntimeError(f"LoRA is not enabled (--enable-lora): {complaint}")
        return self._scheduler.loras

    def _clear_caches(self) -> None:
        self._scheduler.reset_prefix_cache(reset_running_requests=True)
