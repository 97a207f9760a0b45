"""Our logits, as the comparison takes them."""

import numpy as np
import pytest

from bench.quality.sluicegate import Sluicegate
from bench.quality.window import Window
from tests.model_files import SMOLLM2_CASES, SMOLLM2_FOLDER


def test_they_are_the_reference_s() -> None:
    """Of a prompt computed together and its answer token by token: every greedy choice is the row's largest logit."""
    case = SMOLLM2_CASES[0]
    prompt, greedy = case["prompt_token_ids"], case["greedy_token_ids"]
    model = Sluicegate(SMOLLM2_FOLDER, "none", 64)
    logits = model.logits(Window([*prompt, *greedy[:-1]], len(prompt)))
    assert np.argmax(logits[len(prompt) - 1 :], axis=1).tolist() == greedy
    surprises = [-_log_softmax(row)[token_id] for row, token_id in zip(logits, prompt[1:], strict=False)]
    assert surprises == pytest.approx([-logprob for logprob in case["prompt_logprobs"][1:]], abs=1e-3)


def _log_softmax(row: np.ndarray) -> np.ndarray:
    return row - np.log(np.exp(row.astype(np.float64)).sum())
