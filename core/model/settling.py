"""What the tokens that a step chose mean for its requests: which drafts were right, and what goes out."""

from collections.abc import Collection, Sequence

import numpy as np

from core.executor.interface import ModelRunnerOutput
from core.model.request_state import RequestState
from core.model.sampling.rows import Row
from core.model.sampling.sampler import Sampled
from core.wire.messages import LogprobsLists


def settle(rows: Sequence[Row], sampled: Sampled) -> ModelRunnerOutput:
    """Append to each request the tokens of its rows, up to the first that is not the draft in its place.

    A row after a right draft is the one that the next step would have had, so a draft changes what a step gives, never
    what a request gets.
    """
    output = ModelRunnerOutput()
    troubled = {*sampled.num_nans, *sampled.no_possible_token}
    has_reports = bool(troubled or sampled.logprobs)
    first = 0
    while first < len(rows):
        request = rows[first].request
        stop, num_rows = first + 1, 1 + request.num_draft_tokens
        if request.num_draft_tokens:
            stop = first + _count_kept(request, sampled.token_ids[first : first + num_rows], first, troubled)
        kept = sampled.token_ids[first:stop]
        output.sampled_token_ids[request.request_id] = kept
        if has_reports:
            _report(request.request_id, range(first, stop), sampled, output)
        request.settle(kept)
        first += num_rows
    return output


def _count_kept(request: RequestState, chosen: Sequence[int], first: int, troubled: Collection[int]) -> int:
    """How many of the request's rows count; a ``troubled`` one, that has no token to give, only if it is the first.

    Else the run ends before it, so that it is the first of the next step, as it would be without drafts.
    """
    wrong = np.flatnonzero(request.draft_token_ids != chosen[:-1])
    num_kept = int(wrong[0]) + 1 if wrong.size else len(chosen)
    in_trouble = [row - first for row in troubled if first <= row < first + num_kept]
    return max(min(in_trouble), 1) if in_trouble else num_kept


def _report(request_id: str, kept: range, sampled: Sampled, output: ModelRunnerOutput) -> None:
    first = kept.start
    if first in sampled.logprobs:
        output.logprobs[request_id] = _join([sampled.logprobs[row] for row in kept])
    if first in sampled.num_nans:
        output.num_nans_in_logits[request_id] = sampled.num_nans[first]
    if first in sampled.no_possible_token:
        output.no_possible_token.add(request_id)


def _join(parts: Sequence[LogprobsLists]) -> LogprobsLists:
    if len(parts) == 1:
        return parts[0]
    token_ids, logprobs, ranks = (np.concatenate([part[field] for part in parts]) for field in range(3))
    return LogprobsLists(token_ids, logprobs, ranks)
