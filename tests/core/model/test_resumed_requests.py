"""A real, tiny model that goes on with what another core began: the same tokens and scores, whatever is asked for."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from core.config import CacheConfig, SchedulerConfig, SpeculationConfig
from core.engine import EngineCore
from core.executor.in_process import InProcessExecutor
from core.executor.profiler import Profiler
from core.model.model import Model
from core.wire.messages import EngineCoreOutput, EngineCoreRequest
from core.wire.resume import Resume, resuming
from core.wire.sampling_params import RepetitionDetection, SamplingParams
from tests.core.builders import make_message, run_to_end, tokens_of
from tests.core.model.tiny_model import TINY, random_tokens

PROMPT = random_tokens(9, TINY.vocab_size)
NUM_TOKENS = 20
EOS = 7
OFTEN = {EOS: 4.0, 11: 4.0}
"""Biases that make these tokens come up again and again."""
ASKED: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0, "logprobs": 3},
    "seeded": {"temperature": 1.2, "seed": 5, "top_k": 40, "top_p": 0.95},
    "unseeded": {"temperature": 1.0, "min_p": 0.02, "logprobs": 0},
    "penalties": {
        "temperature": 0.8,
        "seed": 1,
        "presence_penalty": 1.5,
        "frequency_penalty": 1.0,
        "repetition_penalty": 1.7,
        "logit_bias": OFTEN,
    },
    "least tokens": {"temperature": 0.0, "min_tokens": 13, "stop_token_ids": [EOS], "logit_bias": {EOS: 100.0}},
    "end of sequence": {"temperature": 1.0, "seed": 3, "eos_token_id": EOS, "min_tokens": 3, "logit_bias": OFTEN},
    "repetition": {
        "temperature": 0.0,
        "logit_bias": {11: 100.0},
        "repetition_detection": RepetitionDetection(1, 1, 15),
    },
    "bad words": {"temperature": 0.0, "bad_words_token_ids": [[11, 11], [EOS]], "logit_bias": OFTEN},
    "scored prompt": {"temperature": 0.0, "prompt_logprobs": 2},
}


@pytest.fixture(scope="module")
def executor(tiny: Model) -> Iterator[InProcessExecutor]:
    executor = InProcessExecutor(lambda: tiny, Profiler(None))
    yield executor
    executor.shutdown()


def params_of(asked: dict[str, Any]) -> SamplingParams:
    stop = [token_id for token_id in (asked.get("eos_token_id"), *asked.get("stop_token_ids", ())) if token_id]
    return SamplingParams(**({"max_tokens": NUM_TOKENS, "all_stop_token_ids": stop} | asked))


def run(executor: InProcessExecutor, drafts: int, *messages: EngineCoreRequest) -> list[list[EngineCoreOutput]]:
    """The outputs of each in a new engine, where they run together."""
    scheduler = SchedulerConfig(4, 64, speculation=SpeculationConfig(drafts, prompt_lookup_min=1))
    engine = EngineCore(executor, CacheConfig(4, 100 * 4 * executor.model_info.kv_bytes_per_token), scheduler, 64)
    for message in messages:
        engine.add_request(engine.preprocess_add_request(message))
    outputs = run_to_end(engine)
    return [outputs[message.request_id] for message in messages]


def scores(outputs: Sequence[EngineCoreOutput]) -> np.ndarray[Any, Any]:
    return np.concatenate([output.new_logprobs.logprobs for output in outputs if output.new_logprobs is not None])


@pytest.mark.parametrize("drafts", [0, 4], ids=["plain", "drafting"])
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_whatever_is_asked_for(executor: InProcessExecutor, asked: dict[str, Any], drafts: int) -> None:
    """Cut after any number of tokens, the rest and the end are those of a run that nothing disturbed."""
    params = params_of(asked)
    (undisturbed,) = run(executor, drafts, make_message("r", PROMPT, params))
    whole = tokens_of(undisturbed)
    assert len(whole) > 3
    cuts = range(len(whole))
    for first in range(0, len(cuts), 4):
        together = cuts[first : first + 4]
        told = [resuming(params, Resume(whole[:cut], "r")) for cut in together]
        messages = [make_message(f"r~{cut}", PROMPT, each) for cut, each in zip(together, told, strict=True)]
        for cut, outputs in zip(together, run(executor, drafts, *messages), strict=True):
            assert tokens_of(outputs) == whole[cut:], cut
            last, expected = outputs[-1], undisturbed[-1]
            assert (last.finish_reason, last.stop_reason) == (expected.finish_reason, expected.stop_reason)
            assert (outputs[0].new_prompt_logprobs_tensors is None) == (cut > 0 or "prompt_logprobs" not in asked)
            if "logprobs" in asked:
                np.testing.assert_allclose(scores(outputs), scores(undisturbed)[cut:], atol=1e-4)
