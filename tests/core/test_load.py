"""From settings to an engine."""

from pathlib import Path
from typing import Any

import pytest

from core.config import CacheConfig, KVEventsConfig, LoraConfig, ModelConfig, SchedulerConfig
from core.load import load_engine
from core.wire.messages import ParallelConfig


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
