"""Groups of layers that share block tables: which layers they are, and whole engines with models that have several."""

from pathlib import Path

import pytest
import torch

from core.config import CacheConfig, ModelConfig, SchedulerConfig
from core.engine import EngineCore
from core.executor.in_process import InProcessExecutor
from core.model.attention.kv_layout import KVLayout
from tests.core.builders import add, run_to_end, step, tokens_of
from tests.core.model.hf.tiny_transformers import logits_by_transformers, write_model
from tests.core.model.tiny_model import random_tokens

GEMMA3_270M = ([512] * 5 + [None]) * 3
GEMMA3_1B = (([512] * 5 + [None]) * 5)[:26]


@pytest.mark.parametrize(
    ("windows", "expected", "group_size"),
    [
        ([None] * 30, (None,), 30),
        ([8] * 4, (8,), 4),
        (GEMMA3_270M, (512,) * 5 + (None,), 3),
        (GEMMA3_1B, (512,) * 6 + (None,), 4),
        ([128, None] * 12, (128, None), 12),
        ([8] * 4 + [None] * 5, (8, None), 5),
        ([8] * 4 + [None] * 6, (8, None, None), 4),
        ([8, 16, None], (8, 16, None), 1),
        ([100, 512, None], (100, None, None), 1),
    ],
    ids=[
        "full",
        "one window",
        "gemma3-270m",
        "gemma3-1b",
        "halves",
        "nearly halves",
        "two thirds",
        "three kinds",
        "beyond the model",
    ],
)
def test_groups_of_layers(windows: list[int | None], expected: tuple[int | None, ...], group_size: int) -> None:
    """As many layers in each as the rarest kind has; a window that no context outgrows is none."""
    layout = KVLayout(windows, max_model_len=512 if 100 in windows else 32768)
    assert (layout.windows, layout.group_size) == (expected, group_size)
    homes = list(zip(layout.groups, layout.places, strict=True))
    assert len(set(homes)) == len(windows)
    assert max(layout.places) < group_size
    for group, window in zip(layout.groups, windows, strict=True):
        assert layout.windows[group] == (None if window == 512 and 100 in windows else window)


@pytest.fixture(scope="module", params=["gemma3_text", "mistral"])
def windowed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, object]:
    """A folder, and the model in it: windows of 8 in two layers of three, or in all."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    return folder, write_model(folder, request.param)


def make_engine(folder: Path, num_blocks: int, budget: int, caches: bool, is_async: bool = False) -> EngineCore:
    executor = InProcessExecutor.load(ModelConfig(path=folder))
    memory = num_blocks * 4 * executor.model_info.kv_bytes_per_token
    return EngineCore(executor, CacheConfig(4, memory, caches), SchedulerConfig(4, budget, is_async), 128)


def answer(engine: EngineCore, prompts: dict[str, list[int]]) -> dict[str, list[int]]:
    for request_id, prompt in prompts.items():
        add(engine, request_id, prompt, temperature=0.0, max_tokens=20, ignore_eos=True)
    return {request_id: tokens_of(outputs) for request_id, outputs in run_to_end(engine).items()}


BEGINNING = random_tokens(40, 160)
PROMPTS = {f"r{n}": BEGINNING[: 8 * n] + random_tokens(3 * n + 1, 160, seed=n) for n in range(6)}
SMALL = {"gemma3_text": 38, "mistral": 9}
"""Blocks in which one request finds room, and four do not."""


@pytest.fixture(scope="module")
def plain(windowed: tuple[Path, object]) -> dict[str, list[int]]:
    """Each prompt whole and alone, nothing cached, in blocks that nobody had before."""
    engine = make_engine(windowed[0], 1000, 512, caches=False)
    answers = {}
    for request_id, prompt in PROMPTS.items():
        answers |= answer(engine, {request_id: prompt})
    engine.shutdown()
    return answers


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_tokens_are_those_of_a_plain_run(
    windowed: tuple[Path, object], plain: dict[str, list[int]], is_async: bool
) -> None:
    """Prompts in chunks that share prefixes, in a pool so small that requests take blocks from each other."""
    engine = make_engine(windowed[0], 1 + SMALL[windowed[0].name[:-1]], 9, caches=True, is_async=is_async)
    assert answer(engine, PROMPTS) == plain
    assert engine.scheduler.num_preemptions > 0
    assert answer(engine, {"r5": PROMPTS["r5"]})["r5"] == plain["r5"]
    assert engine.scheduler.kv_cache.is_unused
    engine.shutdown()


@pytest.mark.parametrize("length", [39, 40, 41], ids=["k blocks - 1", "k blocks", "k blocks + 1"])
def test_a_hit_changes_no_token(windowed: tuple[Path, object], length: int) -> None:
    """Cold, again, and as the beginning of a longer prompt whose blocks behind the window nobody holds any more."""
    engine, prompt = make_engine(windowed[0], 200, 16, caches=True), BEGINNING + BEGINNING[:1]
    cold = answer(engine, {"cold": prompt[:length]})["cold"]
    assert answer(engine, {"hit": prompt[:length]})["hit"] == cold
    assert engine.call_utility("reset_prefix_cache", [])
    answer(engine, {"longer": [*prompt[:length], *random_tokens(30, 160)]})
    add(engine, "hit", prompt[:length], temperature=0.0, max_tokens=20, ignore_eos=True)
    outputs = run_to_end(engine)["hit"]
    assert tokens_of(outputs) == cold
    assert outputs[0].prefill_stats is not None
    assert outputs[0].prefill_stats.num_cached_tokens == (length - 1) // 4 * 4
    engine.shutdown()


def test_a_plain_run_gives_the_tokens_of_transformers(windowed: tuple[Path, object]) -> None:
    """Far beyond the window, from blocks that have been another's."""
    folder, model = windowed
    engine = make_engine(folder, 1 + 3 * 32, 16, caches=True)
    prompt = random_tokens(30, 160, seed=3)
    tokens = answer(engine, {"before": random_tokens(50, 160), "it": prompt})["it"]
    logits = logits_by_transformers(model, prompt + tokens)
    for token_id, row in zip(tokens, logits[len(prompt) - 1 :], strict=False):
        assert row[token_id] > row.max() - 1e-3
    engine.shutdown()


def test_what_a_long_request_holds_is_bounded(windowed: tuple[Path, object]) -> None:
    """In each group with a window: its last 8 tokens and the largest step, in blocks of 4; all of it in the others."""
    engine = make_engine(windowed[0], 200, 8, caches=False)
    add(engine, "long", random_tokens(60, 160), temperature=0.0, max_tokens=60, ignore_eos=True)
    request, groups = engine.scheduler.requests["long"], engine.scheduler.kv_cache.groups
    while engine.has_requests():
        step(engine)
        for group, table in zip(groups, request.block_tables, strict=False):
            num_held = sum(block.block_id > 0 for block in table)
            assert num_held <= (-(-(8 - 1 + 8) // 4) + 1 if group.window else 30)
    assert request.num_tokens == 120
    engine.shutdown()


def test_blocks_of_all_groups_take_the_same_memory(windowed: tuple[Path, object]) -> None:
    """As the executor says, whatever the number of layers."""
    executor = InProcessExecutor.load(ModelConfig(path=windowed[0]))
    executor.initialize_kv_cache(10, 4)
    assert executor.memory_bytes["kv_cache"] == 10 * 4 * executor.model_info.kv_bytes_per_token
    num_layers = 3 // len(executor.model_info.kv_windows)
    assert executor.model_info.kv_bytes_per_token == 2 * num_layers * 2 * 16 * torch.float32.itemsize
    executor.shutdown()
