"""When a request is complete."""

from collections.abc import Iterable
from typing import NamedTuple

from core.request import Request
from core.structured_output.constraint import Constraint
from core.wire.messages import FinishReason


class Stop(NamedTuple):
    """``stop_reason`` as on the wire: the stop token's id, a word, or None for EOS and length."""

    finish_reason: FinishReason
    stop_reason: int | str | None = None


_EOS = Stop(FinishReason.STOP)
_LENGTH = Stop(FinishReason.LENGTH)
_REPETITION = Stop(FinishReason.REPETITION, "repetition_detected")


def find_stop(request: Request) -> Stop | None:
    """Why the request ends with its last token, or None.

    ``min_tokens`` holds back every reason but length: a request that may not stop still ends where its context does.
    """
    may_stop = request.num_output_tokens >= request.sampling_params.min_tokens
    if may_stop:
        token_id = request.token_ids[-1]
        if token_id == request.eos_token_id:
            return _EOS
        if token_id in request.stop_token_ids:
            return Stop(FinishReason.STOP, token_id)
    if request.num_tokens >= request.max_num_tokens:
        return _LENGTH
    watched = request.repetition if may_stop else None
    if watched is not None and watched.take(request.token_ids, request.num_prompt_tokens):
        return _REPETITION
    return None


def append_until_stop(request: Request, token_ids: Iterable[int]) -> Stop | None:
    """Append ``token_ids`` up to the one with which the request ends; those after it are not wanted."""
    for token_id in token_ids:
        request.token_ids.append(token_id)
        stop = find_stop(request)
        if stop is None and request.constraint is not None:
            stop = _follow(request.constraint, token_id)
        if stop is not None:
            return stop
    return None


def _follow(constraint: Constraint, token_id: int) -> Stop | None:
    """Why a request ends that has a form to keep to: it has not, or nothing can follow and it has no EOS to say so."""
    if not constraint.accept(token_id):
        return Stop(FinishReason.ERROR, constraint.fault)
    return Stop(FinishReason.STOP) if constraint.is_exhausted else None
