"""When a request is complete."""

from collections.abc import Iterable
from typing import NamedTuple

from core.request import Request
from core.wire.messages import FinishReason
from core.wire.sampling_params import RepetitionDetection


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
    repetition = request.sampling_params.repetition_detection
    if may_stop and repetition is not None and _repeats(request, repetition):
        return _REPETITION
    return None


def append_until_stop(request: Request, token_ids: Iterable[int]) -> Stop | None:
    """Append ``token_ids`` up to the one with which the request ends; those after it are not wanted."""
    for token_id in token_ids:
        request.token_ids.append(token_id)
        if (stop := find_stop(request)) is not None:
            return stop
    return None


def _repeats(request: Request, repetition: RepetitionDetection) -> bool:
    """Whether the output ends with ``min_count`` copies of one pattern of an allowed size."""
    longest = min(repetition.max_pattern_size, request.num_output_tokens // max(repetition.min_count, 1))
    shortest = max(repetition.min_pattern_size, 1)
    return any(
        _ends_with_copies(request.token_ids, size, repetition.min_count) for size in range(shortest, longest + 1)
    )


def _ends_with_copies(token_ids: list[int], size: int, count: int) -> bool:
    if token_ids[-1] != token_ids[-1 - size]:
        return False
    tail = token_ids[-size * count :]
    return tail[size:] == tail[:-size]
