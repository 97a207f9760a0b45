"""Drafts on real models: however right or wrong they are, every request gets the tokens that it gets without them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.config import ModelConfig
from core.model.lora.adapters import Adapters
from core.model.model import Model
from core.model.registry import load_model
from core.model.runner import ModelRunner
from core.wire.sampling_params import SamplingParams
from tests.core.model.driver import GREEDY, Ask, Driver
from tests.core.model.lora.tiny_adapter import ATTENTION, MLP, TinyAdapter
from tests.core.model.test_runner import ask_case, check_case
from tests.core.model.tiny_families import TINY_FAMILIES, WINDOW
from tests.core.model.tiny_model import TINY, TinyModel, random_tokens
from tests.model_files import SMOLLM2_CASES

LONGEST = 32


def test_all_reference_cases_give_their_tokens_with_drafts(smollm2: Model) -> None:
    """Five tokens at once, of which every fourth or so is wrong; the log-probabilities are the reference's too."""
    answers = {case["name"]: case["greedy_token_ids"] for case in SMOLLM2_CASES}

    def draft(ask: Ask) -> list[int]:
        done = len(ask.output)
        right = answers[ask.request_id][done : done + 5]
        return [token_id if (done + i) % 4 else token_id + 1 for i, token_id in enumerate(right)]

    asks = [ask_case(case) for case in SMOLLM2_CASES]
    num_tokens = {case["name"]: min(len(case["greedy_token_ids"]), LONGEST) for case in SMOLLM2_CASES}
    Driver(ModelRunner(smollm2), draft=draft).run(asks, num_tokens, budget=64)
    for case, ask in zip(SMOLLM2_CASES, asks, strict=True):
        assert len(ask.logprobs) == len(ask.output)
        check_case(case, ask)


FEATURES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.9, "top_p": 0.9, "top_k": 40, "min_p": 0.01},
    "repetition": {"temperature": 0.0, "repetition_penalty": 1.3},
    "penalties": {"temperature": 0.8, "frequency_penalty": 0.7, "presence_penalty": -0.4},
    "bad words": {"temperature": 0.0, "bad_words_token_ids": [[n] for n in range(0, 60, 7)] + [[5, 6], [9, 9]]},
    "min tokens": {"temperature": 0.7, "min_tokens": 9, "all_stop_token_ids": list(range(0, 60, 3))},
    "bias": {"temperature": 0.9, "logit_bias": {3: 4.0, 8: 3.0}},
    "allowed": {"temperature": 1.0, "allowed_token_ids": [1, 2, 3], "frequency_penalty": 0.3},
    "named": {"temperature": 1.0, "logprob_token_ids": [1, 5, 9]},
    "scored": {"temperature": 1.0, "logprobs": 3, "prompt_logprobs": 1},
}


def asks_of_features() -> list[Ask]:
    prompt = random_tokens(20, TINY.vocab_size)
    return [Ask(name, prompt, SamplingParams(**params), seed=11) for name, params in FEATURES.items()]


@pytest.mark.parametrize("budget", [512, 11], ids=["whole-prompts", "chunks"])
@pytest.mark.parametrize("wrong", [1, 2, 5], ids=["all wrong", "half wrong", "some wrong"])
def test_every_sampling_feature_sees_the_drafts_before_it(tiny: Model, wrong: int, budget: int) -> None:
    """Penalties, bad words, min_tokens and the draws, each in a request of its own, all in one batch."""
    expected = asks_of_features()
    Driver(ModelRunner(tiny)).run(expected, 20, budget)
    answers = {ask.request_id: ask.output for ask in expected}

    def draft(ask: Ask) -> list[int]:
        done = len(ask.output)
        right = answers[ask.request_id][done : done + 4]
        return [token if (done + i) % wrong else (token + 1) % TINY.vocab_size for i, token in enumerate(right)]

    asks = asks_of_features()
    Driver(ModelRunner(tiny), draft=draft).run(asks, 20, budget)
    for ask in asks:
        assert ask.output[:20] == answers[ask.request_id], ask.request_id
    for ask, before in zip(asks, expected, strict=True):
        rows = zip(ask.logprobs[:20], before.logprobs, strict=True)
        assert all(row.token_ids.tolist() == row_before.token_ids.tolist() for row, row_before in rows)
    scored = asks[-1].prompt_logprobs
    assert scored is not None
    assert len(scored.ranks.array) == len(asks[-1].prompt) - 1


def test_a_preempted_request_goes_on_after_a_draft(tiny: Model) -> None:
    """With what was accepted and without the rest, in other blocks."""
    expected = Ask("a", random_tokens(20, TINY.vocab_size), GREEDY)
    Driver(ModelRunner(tiny)).run([expected], 24)

    def draft(ask: Ask) -> list[int]:
        done = len(ask.output)
        return [*expected.output[done : done + 2], 0, 1, 2]

    driver = Driver(ModelRunner(tiny), draft=draft)
    resumed = Ask("a", expected.prompt, GREEDY)
    driver.run([resumed], 9)
    driver.finish(resumed)
    driver.run([Ask("b", random_tokens(30, TINY.vocab_size, 1), GREEDY)], 5)
    driver.run([resumed], 24, budget=16)
    assert resumed.output[:24] == expected.output


def check_half_wrong(make_runner: Callable[[], ModelRunner], make_asks: Callable[[], list[Ask]]) -> None:
    """The tokens with drafts of four, every other one wrong, are those without."""
    expected, asks = make_asks(), make_asks()
    Driver(make_runner()).run(expected, 24)
    answers = {ask.request_id: ask.output for ask in expected}

    def draft(ask: Ask) -> list[int]:
        done = len(ask.output)
        right = answers[ask.request_id][done : done + 4]
        return [token if (done + i) % 2 else (token + 1) % TINY.vocab_size for i, token in enumerate(right)]

    Driver(make_runner(), draft=draft).run(asks, 24)
    assert {ask.request_id: ask.output[:24] for ask in asks} == answers


def test_drafts_go_through_sliding_windows(tmp_path: Path) -> None:
    """Of layers whose blocks are in tables of their own, beyond the window."""
    TINY_FAMILIES["gemma3_text"].write(tmp_path)
    model = load_model(ModelConfig(path=tmp_path))
    prompts = [random_tokens(length, TINY.vocab_size) for length in (2 * WINDOW, WINDOW - 3)]
    check_half_wrong(
        lambda: ModelRunner(model),
        lambda: [Ask(f"of {len(prompt)}", prompt, GREEDY) for prompt in prompts],
    )


def test_drafts_go_through_the_adapter_of_their_request(tmp_path: Path) -> None:
    """Two adapters and none in one batch."""
    base = TinyModel(TINY)
    base.write_safetensors(tmp_path)
    adapters = Adapters(max_rank=16)
    model = load_model(ModelConfig(path=tmp_path), adapters)
    for key, modules in ((1, ATTENTION), (2, MLP)):
        adapters.load(key, TinyAdapter(base, modules).write(tmp_path / str(key)))
    prompt = random_tokens(20, TINY.vocab_size)
    check_half_wrong(
        lambda: ModelRunner(model, adapters),
        lambda: [Ask(f"adapter {key}", prompt, GREEDY, lora=key) for key in (None, 1, 2)],
    )
