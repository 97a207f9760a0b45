"""The executor around a real model runner."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.config import ModelConfig
from core.executor.in_process import InProcessExecutor
from core.executor.interface import CachedRequest, ModelInfo, NewRequest, SchedulerOutput
from core.wire.sampling_params import SamplingParams
from tests.core.model.tiny_model import TINY, TinyModel


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[InProcessExecutor]:
    TinyModel(TINY).write_safetensors(tmp_path)
    executor = InProcessExecutor.load(ModelConfig(path=tmp_path))
    executor.initialize_kv_cache(8, 16)
    yield executor
    executor.shutdown()


def prefill(request_id: str) -> SchedulerOutput:
    request = NewRequest(request_id, [1, 2, 3], 3, SamplingParams(temperature=0.0), 0, [1], 0)
    return SchedulerOutput([request], [], {request_id: 3}, [])


def test_it_describes_the_model(executor: InProcessExecutor) -> None:
    """With the model's own limits, and the bytes of keys and values of three layers, two heads of 16 floats."""
    assert executor.model_info == ModelInfo(512, 160, "float32", 2 * 3 * 2 * 16 * 4, 64)
    assert 0 < executor.available_kv_cache_bytes() <= 4 << 30


def test_a_step_is_done_at_once(executor: InProcessExecutor) -> None:
    """Two steps, the second knows the first's token."""
    first = executor.execute_model(prefill("a"))
    second = executor.execute_model(SchedulerOutput([], [CachedRequest("a", [], 3)], {"a": 1}, []))
    assert first.done()
    assert second.done()
    for future in (first, second):
        (token_id,) = future.result().sampled_token_ids["a"]
        assert 0 <= token_id < TINY.vocab_size


def test_a_failing_step_fails_its_future(executor: InProcessExecutor) -> None:
    """Here by naming a request that is not known; the next step runs."""
    failed = executor.execute_model(SchedulerOutput([], [CachedRequest("nobody", [], 3)], {"nobody": 1}, []))
    assert isinstance(failed.exception(), KeyError)
    assert executor.execute_model(prefill("a")).result().sampled_token_ids


def test_after_shutdown_steps_fail(executor: InProcessExecutor) -> None:
    """And shutting down twice is allowed."""
    executor.shutdown()
    executor.shutdown()
    assert isinstance(executor.execute_model(prefill("a")).exception(), RuntimeError)
