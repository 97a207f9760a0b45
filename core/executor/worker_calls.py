"""What ``collective_rpc`` may call on a worker, by the names that vLLM's workers have for it where they have one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from core.executor.interface import ModelInfo


class Worker(Protocol):
    """One rank of an executor."""

    @property
    def model_info(self) -> ModelInfo: ...

    @property
    def memory_bytes(self) -> dict[str, int]:
        """What it holds of each of ``MEMORY_PARTS``."""
        ...


def call_worker(worker: Worker, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The answer, of plain values. Raises ValueError for a method that is not listed, and for arguments: none take any.

    ``check_health``: nil, from a worker that can answer. ``get_model_info``: a map of ModelInfo's fields.
    ``get_memory_usage``: bytes held, by part; an empty part is asleep.
    """
    if method not in WORKER_METHODS:
        raise ValueError(f"method must be one of {', '.join(WORKER_METHODS)}, got {method[:100]!r}")
    if args or kwargs:
        raise ValueError(f"{method} takes no arguments, got {len(args) + len(kwargs)}")
    return WORKER_METHODS[method](worker)


WORKER_METHODS: dict[str, Callable[[Worker], Any]] = {
    "check_health": lambda _worker: None,
    "get_memory_usage": lambda worker: worker.memory_bytes,
    "get_model_info": lambda worker: msgspec.to_builtins(worker.model_info),
}
