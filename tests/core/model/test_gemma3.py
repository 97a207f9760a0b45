"""Gemma 3 270M out of its GGUF, in blocks of two kinds of layers: in float32 its tokens are the reference's."""

from typing import Any

import numpy as np
import pytest
import torch

from core.config import CacheConfig, ModelConfig, SchedulerConfig
from core.engine import EngineCore
from core.executor.in_process import InProcessExecutor
from core.executor.profiler import Profiler
from core.model.model import Model
from core.model.registry import load_model
from core.model.runner import ModelRunner
from core.model.weights.hf_config import find_text_config, read_architecture
from core.model.weights.open_weights import open_weights
from core.model.weights.safetensors_source import read_config
from core.wire.sampling_params import SamplingParams
from tests.core.builders import add, run_to_end, tokens_of
from tests.core.model.driver import Ask, Driver
from tests.core.model.reference_cases import LOGPROB_TOLERANCE, ask_case, check_case, check_tokens
from tests.model_files import GEMMA3_CASES, GEMMA3_FOLDER, find_gemma3

BLOCK_SIZE = 4
WIDE_MARGIN = 0.3
"""Above it activations of 8 bits change no greedy token here."""


@pytest.fixture(scope="module")
def gemma3() -> Model:
    return load_model(ModelConfig(path=find_gemma3(), quantization="none"))


@pytest.mark.parametrize("case", GEMMA3_CASES, ids=lambda case: case["name"])
def test_every_reference_case_gives_its_tokens_alone(gemma3: Model, case: dict[str, Any]) -> None:
    """With the best five log-probabilities of each, and those of the prompt."""
    params = SamplingParams(temperature=0.0, logprobs=5, prompt_logprobs=0)
    ask = Ask(case["name"], case["prompt_token_ids"], params)
    Driver(ModelRunner(gemma3)).run([ask], len(case["top5"]))
    check_case(case, ask)
    assert ask.prompt_logprobs is not None
    logprobs = ask.prompt_logprobs.logprobs.array[:, 0]
    np.testing.assert_allclose(logprobs, case["prompt_logprobs"][1:], atol=LOGPROB_TOLERANCE)


def make_engine(model: Model, budget: int) -> EngineCore:
    executor = InProcessExecutor(lambda: model, Profiler(None))
    memory = 500 * BLOCK_SIZE * executor.model_info.kv_bytes_per_token
    return EngineCore(executor, CacheConfig(BLOCK_SIZE, memory), SchedulerConfig(8, budget), 128)


def check_answers(engine: EngineCore, count: int) -> int:
    """``count`` tokens of all cases in one batch; how many of the prompts' tokens were cached."""
    for case in GEMMA3_CASES:
        add(engine, case["name"], case["prompt_token_ids"], temperature=0.0, max_tokens=count, ignore_eos=True)
    answers = run_to_end(engine)
    for case in GEMMA3_CASES:
        check_tokens(case, tokens_of(answers[case["name"]]))
    stats = [outputs[0].prefill_stats for outputs in answers.values()]
    return sum(each.num_cached_tokens for each in stats if each is not None)


def test_all_reference_cases_give_their_tokens_in_one_batch(gemma3: Model) -> None:
    """Whole prompts; then again, with their beginnings cached."""
    engine = make_engine(gemma3, 512)
    assert check_answers(engine, 32) == 0
    assert check_answers(engine, 8) > 0
    assert engine.scheduler.kv_cache.is_unused
    engine.shutdown()


def test_all_reference_cases_give_their_tokens_when_prompts_come_in_chunks(gemma3: Model) -> None:
    """Of at most eight tokens, beside requests that decode."""
    engine = make_engine(gemma3, 8)
    check_answers(engine, 12)
    engine.shutdown()


def test_quantized_weights_give_the_same_bits_alone_and_in_chunks_beside_others() -> None:
    """Of several types in one file; tokens are the reference's as far as its margins are wide."""
    model = load_model(ModelConfig(path=find_gemma3()))
    assert model.kv_dtype == torch.float16
    alone, beside = ([ask_case(case) for case in GEMMA3_CASES] for _ in range(2))
    for ask in alone:
        Driver(ModelRunner(model)).run([ask], 16)
    Driver(ModelRunner(model)).run(beside, 16, budget=24)
    for case, ask, other in zip(GEMMA3_CASES, alone, beside, strict=True):
        assert ask.output == other.output
        for logprobs, expected in zip(other.logprobs, ask.logprobs, strict=True):
            assert all(map(np.array_equal, logprobs[:3], expected[:3]))
        steps = zip(ask.output, case["greedy_token_ids"], case["top1_margin"], strict=False)
        assert next((margin for found, token_id, margin in steps if found != token_id), 0.0) < WIDE_MARGIN


def test_the_configuration_beside_the_gguf_says_the_same() -> None:
    """What `sluicegate pull` writes for others is the model that the file is."""
    config = find_text_config(read_config(GEMMA3_FOLDER))
    assert read_architecture(config) == open_weights(GEMMA3_FOLDER).architecture
