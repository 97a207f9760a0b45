"""What may be called on a worker."""

import pytest

from core.executor.fake import FAKE_MODEL, FakeExecutor
from core.executor.worker_calls import WORKER_METHODS, call_worker


def test_answers_are_plain() -> None:
    """Maps, numbers and words that any front end can read."""
    worker = FakeExecutor()
    assert call_worker(worker, "check_health", [], {}) is None
    assert call_worker(worker, "get_memory_usage", [], {}) == {"weights": 1000, "kv_cache": 0}
    assert call_worker(worker, "get_model_info", [], {})["vocab_size"] == FAKE_MODEL.vocab_size


@pytest.mark.parametrize("method", ["sleep", "shutdown", "__class__", "", "x" * 10**6])
def test_nothing_else_can_be_called(method: str) -> None:
    """The error lists what can be, and stays short."""
    with pytest.raises(ValueError, match=r"must be one of check_health, get_memory_usage, .*, got") as caught:
        call_worker(FakeExecutor(), method, [], {})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("method", WORKER_METHODS)
def test_none_takes_arguments(method: str) -> None:
    """Neither by place nor by name."""
    with pytest.raises(ValueError, match=f"{method} takes no arguments, got 2"):
        call_worker(FakeExecutor(), method, [1], {"a": 2})
