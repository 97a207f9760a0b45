"""What a front end may call on the engine between two steps. What is not listed here cannot be called.

Named and typed as vLLM's EngineCore has them, because genuine front ends call these.
"""

import inspect
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, get_type_hints

import msgspec

from core.executor.interface import Executor, SchedulerOutput
from core.scheduler import PauseMode, Scheduler


class UtilityError(Exception):
    """A utility call that failed; the text is for the caller."""

    def __init__(self, method: str, cause: object) -> None:
        super().__init__(f"Call to {method} method failed: {cause}")


class Utilities:
    """The methods named in ``METHODS``, called by the busy loop between steps."""

    METHODS = (
        "execute_dummy_batch",
        "get_kv_cache_group_metadata",
        "get_supported_tasks",
        "is_scheduler_paused",
        "is_sleeping",
        "list_loras",
        "pause_scheduler",
        "reset_encoder_cache",
        "reset_mm_cache",
        "reset_prefix_cache",
        "resume_scheduler",
    )

    def __init__(self, scheduler: Scheduler, executor: Executor) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._pauses: list[tuple[Future[None], bool]] = []

    def call(self, method: str, args: list[Any]) -> Any:
        """The result of ``method(*args)``, or a Future of it. Raises UtilityError, and nothing else."""
        if method not in self.METHODS:
            raise UtilityError(method, f"unknown method {method!r}, must be one of {', '.join(self.METHODS)}")
        function = getattr(self, method)
        try:
            return function(*_convert(function, args))
        except Exception as error:
            raise UtilityError(method, error) from error

    @property
    def is_pausing(self) -> bool:
        """Whether a pause is not answered yet."""
        return bool(self._pauses)

    def settle_pauses(self) -> None:
        """Answer the pauses. Called when there is no work, and all outputs of earlier steps are on their way."""
        pauses, self._pauses = self._pauses, []
        for future, clear_cache in pauses:
            if clear_cache:
                self._scheduler.reset_prefix_cache(reset_running_requests=True)
            future.set_result(None)

    def get_supported_tasks(self) -> list[str]:
        return ["generate"]

    def get_kv_cache_group_metadata(self) -> list[dict[str, Any]]:
        block_size = self._scheduler.kv_cache.block_size
        return [{"group_idx": 0, "kind": "full_attention", "block_size": block_size, "sliding_window": None}]

    def list_loras(self) -> list[int]:
        return []

    def reset_mm_cache(self) -> None:
        """Nothing to do: there is no multimodal input."""

    def reset_encoder_cache(self) -> None:
        """Nothing to do: there is no encoder."""

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:  # noqa: ARG002
        """Whether every cached prefix was forgotten. There is no connector whose cache could go with it."""
        return self._scheduler.reset_prefix_cache(reset_running_requests)

    def execute_dummy_batch(self) -> None:
        """An empty step."""
        self._executor.execute_model(SchedulerOutput([], [], {}, [])).result()

    def is_sleeping(self) -> bool:
        """As vLLM has it, a paused engine counts as asleep."""
        return self.is_scheduler_paused()

    def is_scheduler_paused(self) -> bool:
        return self._scheduler.is_paused

    def pause_scheduler(self, mode: PauseMode = "abort", clear_cache: bool = True) -> Future[None]:
        """Stop, answered once idle: "abort" everything, "wait" for what runs, or "keep" it frozen."""
        self._scheduler.pause(mode)
        future: Future[None] = Future()
        self._pauses.append((future, clear_cache))
        return future

    def resume_scheduler(self) -> None:
        self._scheduler.resume()
        pauses, self._pauses = self._pauses, []
        for future, _ in pauses:
            future.set_exception(UtilityError("pause_scheduler", "resumed before the engine was idle"))


def _convert(function: Callable[..., Any], args: list[Any]) -> list[Any]:
    """``args`` as the types that ``function`` declares. Raises TypeError if their number or a type is wrong."""
    types = get_type_hints(function)
    arguments = inspect.signature(function).bind(*args).arguments
    return [_convert_one(name, arg, types[name]) for name, arg in arguments.items()]


def _convert_one(name: str, arg: Any, expected: Any) -> Any:
    try:
        return msgspec.convert(arg, expected)
    except msgspec.ValidationError as error:
        raise TypeError(f"{name} must be {inspect.formatannotation(expected)}, got {arg!r}") from error
