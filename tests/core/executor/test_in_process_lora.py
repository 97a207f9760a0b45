"""Adapters in the executor around a real model: an engine's answers are those of models with the adapter merged."""

import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.config import CacheConfig, LoraConfig, ModelConfig, SchedulerConfig
from core.engine import EngineCore
from core.executor.in_process import InProcessExecutor
from core.executor.interface import MEMORY_PARTS
from core.model.weights.weight_source import ModelLoadError
from core.wire.messages import LoRARequest
from core.wire.sampling_params import SamplingParams
from tests.core.builders import make_message, run_to_end, tokens_of
from tests.core.model.lora.tiny_adapter import TinyAdapter
from tests.core.model.tiny_model import TINY, TinyModel, random_tokens

MODEL = TinyModel(TINY)
PROMPT = random_tokens(40, TINY.vocab_size)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[InProcessExecutor]:
    MODEL.write_safetensors(tmp_path)
    executor = InProcessExecutor.load(ModelConfig(path=tmp_path), max_lora_rank=8)
    yield executor
    executor.shutdown()


@pytest.fixture
def engine(executor: InProcessExecutor) -> EngineCore:
    cache = CacheConfig(16, 64 * 16 * executor.model_info.kv_bytes_per_token)
    return EngineCore(executor, cache, SchedulerConfig(8, 64, async_scheduling=True), 256, lora=LoraConfig())


def greedy(model: TinyModel, count: int) -> list[int]:
    tokens = list(PROMPT)
    for _ in range(count):
        tokens.append(int(model.logits(tokens)[-1].argmax()))
    return tokens[len(PROMPT) :]


def add(engine: EngineCore, request_id: str, lora: LoRARequest | None) -> None:
    params = SamplingParams(max_tokens=6, temperature=0.0)
    engine.add_request(engine.preprocess_add_request(make_message(request_id, PROMPT, params, lora_request=lora)))


def test_tokens_are_those_of_the_merged_models(engine: EngineCore, tmp_path: Path) -> None:
    """First and again out of the prefix cache; adapters are loaded when they are first used."""
    adapters = {name: TinyAdapter(MODEL, seed=seed) for seed, name in enumerate("ab")}
    expected = {name: greedy(adapter.merged_into(MODEL), 6) for name, adapter in adapters.items()}
    expected["none"] = greedy(MODEL, 6)
    assert len({tuple(tokens) for tokens in expected.values()}) == 3
    loras = {
        name: LoRARequest(name, lora_id, str(adapter.write(tmp_path / name)))
        for lora_id, (name, adapter) in enumerate(adapters.items(), 1)
    }
    for attempt in "12":
        for name in expected:
            add(engine, f"{name}{attempt}", loras.get(name))
        outputs = run_to_end(engine)
        assert {name: tokens_of(outputs[f"{name}{attempt}"]) for name in expected} == expected


def test_adapters_sleep_and_wake_with_the_weights(
    engine: EngineCore, executor: InProcessExecutor, tmp_path: Path
) -> None:
    """Asleep they hold no memory; one whose files are gone keeps the weights asleep, and says which it is."""
    adapter = TinyAdapter(MODEL)
    lora = LoRARequest("a", 1, str(adapter.write(tmp_path / "a")))
    add(engine, "before", lora)
    before = tokens_of(run_to_end(engine)["before"])
    held = weakref.ref(executor._running.model)
    engine.call_utility("sleep", [])
    run_to_end(engine)
    assert held() is None
    config = tmp_path / "a" / "adapter_config.json"
    config.rename(tmp_path / "elsewhere")
    with pytest.raises(ModelLoadError, match=r"a/adapter_config\.json: cannot be read"):
        executor.wake_up(MEMORY_PARTS)
    assert "weights" in executor.asleep_parts
    (tmp_path / "elsewhere").rename(config)
    engine.call_utility("wake_up", [None])
    add(engine, "after", lora)
    assert tokens_of(run_to_end(engine)["after"]) == before == greedy(adapter.merged_into(MODEL), 6)


def test_a_broken_adapter_is_told_and_disturbs_nobody(engine: EngineCore, tmp_path: Path) -> None:
    """Its request ends with the sentence that names file and field."""
    folder = TinyAdapter(MODEL, rank=16).write(tmp_path / "a")
    add(engine, "bad", LoRARequest("a", 1, str(folder)))
    add(engine, "good", None)
    outputs = run_to_end(engine)
    (end,) = outputs["bad"]
    bound = "r must be at most 8, which is --max-lora-rank, got 16"
    assert end.stop_reason == f"refused: lora_request {folder}/adapter_config.json: {bound}"
    assert tokens_of(outputs["good"]) == greedy(MODEL, 6)


def test_without_adapters_there_is_nothing_to_load(tmp_path: Path) -> None:
    MODEL.write_safetensors(tmp_path)
    executor = InProcessExecutor.load(ModelConfig(path=tmp_path))
    with pytest.raises(RuntimeError, match="LoRA is not enabled"):
        executor.load_lora(1, "/a")
    executor.shutdown()
