"""Outputs that decode, and are not what was asked for."""

import numpy as np
import pytest

from core.wire.messages import EngineCoreOutput, FinishReason, LogprobsLists, LogprobsTensors
from core.wire.sampling_params import SamplingParams
from core.wire.tensor import Tensor
from service.cores.output_check import fault_of, prompt_fault_of

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
    ("shapes", "types", "first_id", "fault"),
    [
        (((), (), ()), "<i4 <f4 <i8", 0, "are no table: (), () and ranks ()"),
        (((1,), (1,), (1,)), "<i4 <f4 <i8", 0, "are no table: (1,), (1,) and ranks (1,)"),
        (((1, 0), (1, 0), (1,)), "<i4 <f4 <i8", 0, "are no table: (1, 0), (1, 0) and ranks (1,)"),
        (((1, 2), (1, 3), (1,)), "<i4 <f4 <i8", 0, "are no table: (1, 2), (1, 3) and ranks (1,)"),
        (((1, 2), (1, 2), (2,)), "<i4 <f4 <i8", 0, "are no table: (1, 2), (1, 2) and ranks (2,)"),
        (((1, 2), (1, 2), (1,)), "<f4 <f4 <i8", 0, "are of types float32, float32 and int64"),
        (((1, 2), (1, 2), (1,)), "<i4 <i4 <i8", 0, "are of types int32, int32 and int64"),
        (((1, 2), (1, 2), (1,)), "<i4 <f4 <c8", 0, "are of types int32, float32 and complex64"),
        (((1, 2), (1, 2), (1,)), "<i4 <f4 <i8", -1, "have token ids from -1 to 0"),
        (((1, 2), (1, 2), (1,)), "<u8 <f4 <i8", 2**63, f"have token ids from 0 to {2**63}"),
        (((1, 2), (1, 2), (1,)), "<i4 <f4 <i8", 5, None),
    ],
)
def test_what_is_no_table(shapes: tuple[tuple[int, ...], ...], types: str, first_id: int, fault: str | None) -> None:
    """Of new tokens and of the prompt, asked for or not: it could not be shown to the client."""
    ids, values, ranks = (np.zeros(shape, dtype) for shape, dtype in zip(shapes, types.split(), strict=True))
    ids.flat[:1] = first_id
    new = EngineCoreOutput("r", [1], LogprobsLists(ids, values, ranks))
    of_prompt = LogprobsTensors(Tensor(ids), Tensor(values), Tensor(ranks))
    prompt = EngineCoreOutput("r", [1], new_prompt_logprobs_tensors=of_prompt)
    assert fault_of(new, PLAIN) == (fault and f"its log-probabilities {fault}")
    assert prompt_fault_of(prompt, PLAIN, 2) == (fault and f"the log-probabilities of its prompt {fault}")


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
