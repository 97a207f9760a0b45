"""What a correct float32 model says to the reference prompts, for front ends that show tokens and log-probabilities."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.model_files import SMOLLM2_CASES

NUM_TOKENS = 8
"""Of each answer: as many as the reference has log-probabilities for."""
CLEAR_MARGIN = 0.02
"""Below this log-probability gap to the second best token, two correct implementations may differ."""
LOGPROB_TOLERANCE = 0.02
TEXT_CASES = [case for case in SMOLLM2_CASES if "messages" not in case]
CHAT_CASES = [case for case in SMOLLM2_CASES if "messages" in case]
CAPITAL, STORY = (next(case for case in TEXT_CASES if case["name"] == name) for name in ("capital", "story"))
ITALY = next(case for case in CHAT_CASES if case["name"] == "chat-capital")


def check_tokens(case: dict[str, Any], token_ids: Sequence[int], logprobs: Sequence[float]) -> None:
    """The greedy answer's beginning. Compares up to the first step that is not clear, if the tokens part there."""
    expected = case["greedy_token_ids"][: len(token_ids)]
    for step, (token_id, logprob) in enumerate(zip(token_ids, logprobs, strict=True)):
        if token_id != expected[step]:
            assert case["top1_margin"][step] < CLEAR_MARGIN, (case["name"], step, token_ids, expected)
            return
        assert logprob == pytest.approx(case["top5"][step][0][1], abs=LOGPROB_TOLERANCE), (case["name"], step)
    assert list(token_ids) == expected, case["name"]


def check_prompt(case: dict[str, Any], logprobs: Sequence[float | None]) -> None:
    """Log-probabilities of the prompt's own tokens, of which the first has none."""
    assert logprobs[0] is None
    assert logprobs[1:] == pytest.approx(case["prompt_logprobs"][1:], abs=LOGPROB_TOLERANCE), case["name"]
