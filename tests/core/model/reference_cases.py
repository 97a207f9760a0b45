"""Cases of tests/data/reference, run through a model runner."""

from collections.abc import Sequence
from typing import Any

import pytest

from core.wire.sampling_params import SamplingParams
from tests.core.model.driver import Ask

CLEAR_MARGIN = 0.02
"""Below this gap to the second best token, two correct implementations may differ."""
LOGPROB_TOLERANCE = 0.02


def ask_case(case: dict[str, Any]) -> Ask:
    return Ask(case["name"], case["prompt_token_ids"], SamplingParams(temperature=0.0, logprobs=5))


def check_case(case: dict[str, Any], ask: Ask) -> None:
    """As far as ``ask`` went, or up to the first step that is not clear, if the tokens part there."""
    for step in range(check_tokens(case, ask.output)):
        if step < len(case["top5"]):
            check_top5(case["top5"][step], ask.logprobs[step].token_ids[0], ask.logprobs[step].logprobs[0])


def check_tokens(case: dict[str, Any], output: Sequence[int]) -> int:
    """How many of ``output`` are the case's: all, unless they part at a step that is not clear."""
    for step, (token_id, expected) in enumerate(zip(output, case["greedy_token_ids"], strict=False)):
        if token_id != expected:
            assert case["top1_margin"][step] < CLEAR_MARGIN, (case["name"], step, output)
            return step
    return min(len(output), len(case["greedy_token_ids"]))


def check_top5(expected: list[list[float]], token_ids: Sequence[int], logprobs: Sequence[float]) -> None:
    found = dict(zip(token_ids, logprobs, strict=True))
    # A sixth token may be so close to the fifth that it takes its place.
    for token_id, logprob in expected[:4]:
        assert found[int(token_id)] == pytest.approx(logprob, abs=LOGPROB_TOLERANCE)
