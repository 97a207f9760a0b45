"""The executor around a real model runner."""

import dataclasses
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.config import ModelConfig
from core.executor.in_process import InProcessExecutor
from core.executor.interface import MEMORY_PARTS, CachedRequest, ModelInfo, NewRequest, SchedulerOutput
from core.model.weights.weight_source import ModelLoadError
from core.wire.sampling_params import SamplingParams
from tests.core.model.tiny_model import TINY, TINY_NATIVE, TinyModel


@pytest.fixture
def executor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InProcessExecutor]:
    """Of the architecture that a test is parametrized with."""
    TinyModel(getattr(request, "param", TINY)).write_safetensors(tmp_path)
    executor = InProcessExecutor.load(ModelConfig(path=tmp_path), tmp_path / "profiles")
    executor.initialize_kv_cache(8, 16)
    yield executor
    executor.shutdown()


def prefill(request_id: str) -> SchedulerOutput:
    request = NewRequest(request_id, [1, 2, 3], 3, SamplingParams(temperature=0.0), 0, [[1]], 0)
    return SchedulerOutput([request], [], {request_id: 3}, [])


def test_it_describes_the_model(executor: InProcessExecutor) -> None:
    """With the model's own limits, and the bytes of keys and values of three layers, two heads of 16 floats."""
    assert executor.model_info == ModelInfo(512, 160, "float32", 2 * 3 * 2 * 16 * 4, 64)
    left = executor.memory_left(512, 64)
    assert 0 < left.kv_cache_bytes <= 4 << 30
    assert left.num_layers == 3
    assert left.step_bytes > 64 * 160 * 4


def test_steps_run_in_the_order_in_which_they_were_started(executor: InProcessExecutor) -> None:
    """The second knows the first's token, though it was started without waiting for it."""
    first = executor.execute_model(prefill("a"))
    second = executor.execute_model(SchedulerOutput([], [CachedRequest("a", [], 3)], {"a": 1}, []))
    for future in (second, first):
        (token_id,) = future.result().sampled_token_ids["a"]
        assert 0 <= token_id < TINY.vocab_size
        assert first.done()


def test_a_failing_step_fails_its_future(executor: InProcessExecutor) -> None:
    """Here by naming a request that is not known; the next step runs."""
    failed = executor.execute_model(SchedulerOutput([], [CachedRequest("nobody", [], 3)], {"nobody": 1}, []))
    assert isinstance(failed.exception(), KeyError)
    assert executor.execute_model(prefill("a")).result().sampled_token_ids


def test_after_shutdown_no_step_starts(executor: InProcessExecutor) -> None:
    """And shutting down twice is allowed."""
    executor.shutdown()
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.execute_model(prefill("a"))


@pytest.mark.parametrize(("first", "last"), [MEMORY_PARTS, MEMORY_PARTS[::-1]])
@pytest.mark.parametrize("executor", [TINY, TINY_NATIVE], indirect=True, ids=["torch's cache", "native cache"])
def test_memory_goes_and_comes_back(executor: InProcessExecutor, first: str, last: str) -> None:
    """Asleep it holds neither model nor KV cache, in no corner; awake, part by part, a prompt gets its token again."""
    before = executor.execute_model(prefill("a")).result()
    memory = executor.memory_bytes
    assert memory["kv_cache"] == 8 * 16 * executor.model_info.kv_bytes_per_token
    assert memory["weights"] > 100_000
    held = [weakref.ref(executor._running.model), weakref.ref(executor._running.cache)]
    executor.sleep()
    assert [reference() for reference in held] == [None, None]
    assert executor.memory_bytes == dict.fromkeys(MEMORY_PARTS, 0)
    assert executor.asleep_parts == set(MEMORY_PARTS)
    assert isinstance(executor.execute_model(prefill("b")).exception(), RuntimeError)
    executor.wake_up([first])
    assert executor.asleep_parts == {last}
    executor.wake_up(MEMORY_PARTS)
    assert executor.memory_bytes == memory
    after = executor.execute_model(prefill("c")).result()
    assert after.sampled_token_ids["c"] == before.sampled_token_ids["a"]


def test_other_files_do_not_wake(executor: InProcessExecutor, tmp_path: Path) -> None:
    """Files that are gone, or have become another model's, are an error that says so, and it sleeps on."""
    executor.sleep()
    weights = tmp_path / "model.safetensors"
    weights.rename(tmp_path / "elsewhere")
    with pytest.raises(ModelLoadError, match="must hold"):
        executor.wake_up(MEMORY_PARTS)
    TinyModel(dataclasses.replace(TINY, num_layers=2)).write_safetensors(tmp_path)
    with pytest.raises(RuntimeError, match="files have changed while it slept"):
        executor.wake_up(MEMORY_PARTS)
    assert executor.asleep_parts == set(MEMORY_PARTS)


def test_profile_of_steps(executor: InProcessExecutor, tmp_path: Path) -> None:
    """The trace names what the step ran, and workers answer beside it."""
    executor.start_profile("mine", 0, 1)
    executor.execute_model(prefill("a")).result()
    executor.stop_profile()
    (trace,) = (tmp_path / "profiles").glob("mine-*.trace.json")
    assert "native_linear" in trace.read_text()
    assert executor.collective_rpc("check_health", None, [], {}) == [None]


def test_more_memory_than_there_is(executor: InProcessExecutor) -> None:
    """A KV cache that the machine cannot hold is refused with the bound: the system would promise it and kill us."""
    with pytest.raises(ValueError, match=r"kv_cache_memory must be at most what cpu has left, \d+ bytes, got \d{16,}"):
        executor.initialize_kv_cache(1 << 40, 1 << 10)
