"""What a core may get wrong in an output that decodes: it is of another version, or its numbers have gone bad. Pure."""

from core.wire.messages import EngineCoreOutput
from core.wire.sampling_params import SamplingParams


def fault_of(output: EngineCoreOutput, params: SamplingParams) -> str | None:
    """What makes ``output`` useless to its own request, and to no other; None if it is as it was asked for.

    Token ids are checked where they become text.
    """
    if output.num_nans_in_logits > 0:
        return f"{output.num_nans_in_logits} of its logits are no numbers"
    num_tokens = len(output.new_token_ids)
    if params.logprobs is not None and num_tokens and num_tokens != (num_rows := _num_rows(output)):
        return f"it has {num_tokens} tokens and the log-probabilities of {num_rows}"
    return None


def prompt_fault_of(output: EngineCoreOutput, params: SamplingParams, num_prompt_tokens: int) -> str | None:
    """As ``fault_of``, of what only the first output of a request has. One that was ended before need not have it."""
    if params.prompt_logprobs is None or not output.new_token_ids:
        return None
    scores, num_expected = output.new_prompt_logprobs_tensors, num_prompt_tokens - 1
    num_rows = len(scores.ranks.array) if scores is not None else 0
    if num_rows == num_expected:
        return None
    return f"it has the log-probabilities of {num_rows} prompt tokens instead of {num_expected}"


def _num_rows(output: EngineCoreOutput) -> int:
    return len(output.new_logprobs.ranks) if output.new_logprobs is not None else 0
