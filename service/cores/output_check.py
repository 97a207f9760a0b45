"""What a core may get wrong in an output that decodes: it is of another version, or its numbers have gone bad. Pure."""

from typing import Any

from numpy.typing import NDArray

from core.wire.messages import EngineCoreOutput
from core.wire.sampling_params import SamplingParams

_MAX_INTEGER = 2**31 - 1


def fault_of(output: EngineCoreOutput, params: SamplingParams) -> str | None:
    """What makes ``output`` useless to its own request, and to no other; None if it is as it was asked for.

    Token ids are checked where they become text.
    """
    if output.num_nans_in_logits > 0:
        return f"{output.num_nans_in_logits} of its logits are no numbers"
    if (scores := output.new_logprobs) is not None:
        fault = _table_fault(scores.token_ids, scores.logprobs, scores.ranks)
        if fault is not None:
            return f"its log-probabilities {fault}"
    num_tokens = len(output.new_token_ids)
    asks = params.logprobs is not None or params.logprob_token_ids is not None
    if asks and num_tokens and num_tokens != (num_rows := _num_rows(output)):
        return f"it has {num_tokens} tokens and the log-probabilities of {num_rows}"
    return None


def prompt_fault_of(output: EngineCoreOutput, params: SamplingParams, num_prompt_tokens: int) -> str | None:
    """As ``fault_of``, of what only the first output of a request has. One that was ended before need not have it."""
    scores, num_expected = output.new_prompt_logprobs_tensors, num_prompt_tokens - 1
    if scores is not None:
        fault = _table_fault(scores.token_ids.array, scores.logprobs.array, scores.ranks.array)
        if fault is not None:
            return f"the log-probabilities of its prompt {fault}"
    if params.prompt_logprobs is None or not output.new_token_ids:
        return None
    num_rows = len(scores.ranks.array) if scores is not None else 0
    if num_rows == num_expected:
        return None
    return f"it has the log-probabilities of {num_rows} prompt tokens instead of {num_expected}"


def _num_rows(output: EngineCoreOutput) -> int:
    return len(output.new_logprobs.ranks) if output.new_logprobs is not None else 0


def _table_fault(token_ids: NDArray[Any], logprobs: NDArray[Any], ranks: NDArray[Any]) -> str | None:
    """What keeps them from being a table [rows, columns], its token in column 0, with a rank for each row."""
    shape = token_ids.shape
    if len(shape) != 2 or not shape[1] or logprobs.shape != shape or ranks.shape != shape[:1]:
        return f"are no table: {shape}, {logprobs.shape} and ranks {ranks.shape}"
    if token_ids.dtype.kind not in "iu" or logprobs.dtype.kind != "f" or ranks.dtype.kind not in "iu":
        return f"are of types {token_ids.dtype}, {logprobs.dtype} and {ranks.dtype}"
    for name, integers in (("token ids", token_ids), ("ranks", ranks)):
        if integers.size and not 0 <= integers.min() <= integers.max() <= _MAX_INTEGER:
            return f"have {name} from {integers.min()} to {integers.max()}"
    return None
