"""From settings to an engine."""

from pathlib import Path
from typing import Any

import pytest

from core.config import CacheConfig, KVEventsConfig, LoraConfig, ModelConfig, SchedulerConfig
from core.load import load_engine
from core.native import runnable_kernels
from core.wire.messages import ParallelConfig
from tests.core.model.tiny_model import TINY, TinyModel


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"lora": LoraConfig()}, "--enable-lora: an embedding model runs without adapters"),
        (
            {"kv_events": KVEventsConfig("inproc://events")},
            "--kv-events-endpoint inproc://events: an embedding model has no KV cache",
        ),
    ],
    ids=["adapters", "KV events"],
)
def test_an_embedding_model_is_not_given_what_it_would_ignore(
    tmp_path: Path, settings: dict[str, Any], error: str
) -> None:
    """It is refused by its flag, before the model is loaded."""
    (tmp_path / "modules.json").write_text("[]")
    with pytest.raises(ValueError, match=error):
        load_engine(ModelConfig(tmp_path), CacheConfig(), SchedulerConfig(), ParallelConfig(), lambda: None, **settings)


def test_cores_that_add_up_otherwise_say_so(tmp_path: Path) -> None:
    """They do not go on with each other's requests; of the same kind they do."""
    TinyModel(TINY).write_safetensors(tmp_path)

    def key(kernels: str) -> str:
        config, cache = ModelConfig(tmp_path, kernels=kernels), CacheConfig(kv_cache_memory_bytes=1 << 20)
        engine = load_engine(config, cache, SchedulerConfig(), ParallelConfig(), lambda: None)
        engine.shutdown()
        assert isinstance(engine.ready_response.resume_key, str)
        return engine.ready_response.resume_key

    names = [*runnable_kernels(), "torch"]
    assert len({key(name) for name in names}) == len(names)
    assert key(names[0]) == key("auto")
