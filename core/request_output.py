"""What goes out for one request after a step."""

from collections.abc import Sequence

from core.executor.interface import ModelRunnerOutput
from core.request import Request
from core.stop import Stop, append_until_stop
from core.wire.messages import EngineCoreOutput, LogprobsLists


def make_output(request: Request, new_token_ids: Sequence[int] = ()) -> EngineCoreOutput:
    """``new_token_ids``, the reason if the request has ended, and what was not told yet of its start."""
    return EngineCoreOutput(
        request_id=request.request_id,
        new_token_ids=[*new_token_ids],
        finish_reason=request.finish_reason,
        events=request.take_events(),
        trace_headers=request.trace_headers,
        prefill_stats=request.take_prefill_stats(),
    )


def append_tokens(
    request: Request, token_ids: Sequence[int], result: ModelRunnerOutput
) -> tuple[EngineCoreOutput, Stop | None]:
    """Append ``token_ids`` up to the end of ``request``: what goes out of them, and whether that is the end and why."""
    num_before = request.num_tokens
    stop = append_until_stop(request, token_ids)
    output = make_output(request, request.token_ids[num_before:])
    _attach_logprobs(output, result)
    return output, stop


def _attach_logprobs(output: EngineCoreOutput, result: ModelRunnerOutput) -> None:
    """Those of the new tokens, a row for each, and those of the prompt."""
    request_id, num_tokens = output.request_id, len(output.new_token_ids)
    if (rows := result.logprobs.get(request_id)) is not None:
        kept = slice(num_tokens)
        output.new_logprobs = LogprobsLists(rows.token_ids[kept], rows.logprobs[kept], rows.ranks[kept])
    output.new_prompt_logprobs_tensors = result.prompt_logprobs.get(request_id)
