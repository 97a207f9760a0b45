"""Outputs that decode, and are not what was asked for."""

import numpy as np
import pytest

from core.wire.messages import EngineCoreOutput, FinishReason, LogprobsLists, LogprobsTensors
from core.wire.sampling_params import SamplingParams
from core.wire.tensor import Tensor
from service.output_check import fault_of, prompt_fault_of

PLAIN, SCORED = SamplingParams(), SamplingParams(logprobs=0, prompt_logprobs=0)


def logprobs(num_rows: int) -> LogprobsLists:
    column = np.zeros((num_rows, 1))
    return LogprobsLists(column.astype(np.int32), column.astype(np.float32), np.ones(num_rows, np.int64))


def prompt_logprobs(num_rows: int) -> LogprobsTensors:
    column = np.zeros((num_rows, 1))
    ids, values = Tensor(column.astype(np.int32)), Tensor(column.astype(np.float32))
    return LogprobsTensors(ids, values, Tensor(np.ones(num_rows, np.int32)))


@pytest.mark.parametrize(
    ("output", "params", "fault"),
    [
        (EngineCoreOutput("r", [1, 2]), PLAIN, None),
        (EngineCoreOutput("r", [1, 2], logprobs(2)), SCORED, None),
        (EngineCoreOutput("r", [], finish_reason=FinishReason.ABORT), SCORED, None),
        (EngineCoreOutput("r", [1, 2]), SCORED, "it has 2 tokens and the log-probabilities of 0"),
        (EngineCoreOutput("r", [1, 2], logprobs(1)), SCORED, "it has 2 tokens and the log-probabilities of 1"),
        (EngineCoreOutput("r", [1], num_nans_in_logits=7), PLAIN, "7 of its logits are no numbers"),
    ],
)
def test_faults(output: EngineCoreOutput, params: SamplingParams, fault: str | None) -> None:
    """Log-probabilities are there for each token, if asked for; logits are numbers."""
    assert fault_of(output, params) == fault


@pytest.mark.parametrize(
    ("scores", "num_prompt_tokens", "fault"),
    [
        (prompt_logprobs(2), 3, None),
        (None, 1, None),
        (None, 3, "it has the log-probabilities of 0 prompt tokens instead of 2"),
        (prompt_logprobs(5), 3, "it has the log-probabilities of 5 prompt tokens instead of 2"),
    ],
)
def test_prompt_faults(scores: LogprobsTensors | None, num_prompt_tokens: int, fault: str | None) -> None:
    """They are there for each token of the prompt but the first."""
    output = EngineCoreOutput("r", [1], new_prompt_logprobs_tensors=scores)
    assert prompt_fault_of(output, SCORED, num_prompt_tokens) == fault
    assert prompt_fault_of(output, PLAIN, num_prompt_tokens) is None
    ended = EngineCoreOutput("r", [], finish_reason=FinishReason.ABORT, new_prompt_logprobs_tensors=scores)
    assert prompt_fault_of(ended, SCORED, num_prompt_tokens) is None
