"""What a front end may call on an engine that embeds."""

from concurrent.futures import Future
from typing import Any

from core.embedding.queue import EmbeddingQueue
from core.pause_state import PauseMode
from core.pauses import Pauses
from core.utility_table import UtilityTable
from core.wire.pooling_params import EMBED_TASK


class EmbeddingUtilities(UtilityTable):
    """Named and typed as vLLM's. There is no KV cache to reset, and no sleep."""

    METHODS = (
        "get_kv_cache_group_metadata",
        "get_supported_tasks",
        "is_scheduler_paused",
        "is_sleeping",
        "list_loras",
        "pause_generation",
        "pause_scheduler",
        "reset_encoder_cache",
        "reset_mm_cache",
        "reset_prefix_cache",
        "resume_scheduler",
    )

    def __init__(self, queue: EmbeddingQueue) -> None:
        self._queue = queue
        self._pauses = Pauses(queue)

    @property
    def is_pausing(self) -> bool:
        return self._pauses.is_pausing

    def settle_pauses(self) -> None:
        self._pauses.settle()

    def get_supported_tasks(self) -> list[str]:
        return [EMBED_TASK]

    def get_kv_cache_group_metadata(self) -> list[dict[str, Any]]:
        return []

    def is_scheduler_paused(self) -> bool:
        return self._queue.is_paused

    def is_sleeping(self) -> bool:
        """As vLLM has it, a paused engine counts as asleep."""
        return self._queue.is_paused

    def list_loras(self) -> list[int]:
        return []

    def pause_scheduler(self, mode: PauseMode = "abort", clear_cache: bool = True) -> Future[None]:  # noqa: ARG002
        """Stop, answered once idle: "abort" what waits, or "wait" and "keep" it."""
        return self._pauses.pause(mode, lambda: None)

    def pause_generation(self, mode: PauseMode = "abort", clear_cache: bool = True) -> Future[None]:
        return self.pause_scheduler(mode, clear_cache)

    def resume_scheduler(self) -> None:
        self._pauses.resume()

    def reset_encoder_cache(self) -> None:
        """Nothing to do: nothing is kept."""

    def reset_mm_cache(self) -> None:
        """Nothing to do: there is no multimodal input."""

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:  # noqa: ARG002
        """There is none: nothing is left of any prefix."""
        return True
