"""Events as messages of sluicegate.v1."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from core.wire.messages import FinishReason, LogprobsLists, LogprobsTensors
from service.events import Delta, Event, Finished, Started
from service.generation_request import GenerationRequest
from service.sequence import SequenceFinish
from service.servicers.protobuf_bytes import bytes_tag, varint
from sluicegate.v1 import inference_service_pb2 as pb

_Result = TypeVar("_Result")

_INLINE_BELOW_LOGPROBS = 2048
"""Entries, each about 2 µs to put into a message. A scored prompt has them by the hundred thousand."""
_COST_OF_ALL = 64
"""In entries: what a token scored with all others takes. Those are copied as they are, as 200 kB."""
_ALL_TAG = bytes_tag(pb.TokenLogprobs.ALL_FIELD_NUMBER)
_FINISH_REASONS = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.ABORT: pb.FINISH_REASON_ABORT,
    FinishReason.ERROR: pb.FINISH_REASON_ERROR,
    FinishReason.REPETITION: pb.FINISH_REASON_REPETITION,
}


async def off_loop_if_large(convert: Callable[[Event], _Result], event: Event) -> _Result:
    """``convert(event)``, in a thread if so many log-probabilities would hold up every other stream."""
    return convert(event) if is_small(event) else await asyncio.to_thread(convert, event)


def is_small(event: Event) -> bool:
    """Whether it has so few log-probabilities that a thread would cost more than to convert it."""
    return _count_logprobs(event) < _INLINE_BELOW_LOGPROBS


def to_stream_response(request_id: str, event: Event) -> pb.GenerateStreamResponse:
    """One message of a stream. Runs for every token: filling the parts in place halves what building them costs."""
    response = pb.GenerateStreamResponse(request_id=request_id)
    if isinstance(event, Delta):
        _fill_delta(response.delta, event)
    elif isinstance(event, Started):
        _fill_started(response.started, event)
    else:
        _fill_finished(response.finished, event)
    return response


class ResponseBuilder:
    """Gathers the events of one request into one GenerateResponse."""

    def __init__(self, request: GenerationRequest) -> None:
        n = request.sampling_params.n
        self._response = pb.GenerateResponse(request_id=request.request_id)
        self._response.outputs.extend(pb.SequenceOutput(index=index) for index in range(n))
        self._texts: list[list[str]] = [[] for _ in range(n)]

    def add(self, event: Event) -> None:
        """Take in the next event."""
        if isinstance(event, Delta):
            output = self._response.outputs[event.index]
            self._texts[event.index].append(event.text)
            output.token_ids.extend(event.token_ids)
            output.logprobs.extend(token_logprobs(event.logprobs, event.scores_all))
        elif isinstance(event, Started):
            self._response.prompt_token_ids.extend(event.prompt_token_ids)
            self._response.prompt_logprobs.extend(prompt_logprobs(event.prompt_logprobs, event.scores_all))
            self._response.usage.num_prompt_tokens = event.num_prompt_tokens
            self._response.usage.num_cached_tokens = event.num_cached_tokens
        else:
            self._finish(event)

    def build(self) -> pb.GenerateResponse:
        """The answer; call it once, after the last event."""
        for output, texts in zip(self._response.outputs, self._texts, strict=True):
            output.text = "".join(texts)
        return self._response

    def _finish(self, event: Finished) -> None:
        _set_finish(self._response.outputs[event.index], event.finish)
        self._response.usage.num_output_tokens += event.finish.num_output_tokens


def _fill_started(message: pb.Started, event: Started) -> None:
    message.num_prompt_tokens = event.num_prompt_tokens
    message.num_cached_tokens = event.num_cached_tokens
    message.prompt_token_ids.extend(event.prompt_token_ids)
    message.prompt_logprobs.extend(prompt_logprobs(event.prompt_logprobs, event.scores_all))


def _fill_delta(message: pb.Delta, event: Delta) -> None:
    message.index = event.index
    message.text = event.text
    message.token_ids.extend(event.token_ids)
    if event.logprobs is not None:
        message.logprobs.extend(token_logprobs(event.logprobs, event.scores_all))


def _fill_finished(message: pb.Finished, event: Finished) -> None:
    message.index = event.index
    message.usage.num_prompt_tokens = event.num_prompt_tokens
    message.usage.num_cached_tokens = event.num_cached_tokens
    message.usage.num_output_tokens = event.finish.num_output_tokens
    _set_finish(message, event.finish)


def _set_finish(message: pb.Finished | pb.SequenceOutput, finish: SequenceFinish) -> None:
    """The fields that a stream's last event and a unary answer's sequence share."""
    message.finish_reason = _FINISH_REASONS[finish.reason]
    if finish.stop_token_id is not None:
        message.stop_token_id = finish.stop_token_id
    if finish.stop_string is not None:
        message.stop_string = finish.stop_string


def token_logprobs(logprobs: LogprobsLists | None, scores_all: bool = False) -> Iterator[pb.TokenLogprobs]:
    """One message per new token."""
    if logprobs is not None:
        yield from _rows(logprobs.token_ids, logprobs.logprobs, logprobs.ranks, scores_all)


def prompt_logprobs(logprobs: LogprobsTensors | None, scores_all: bool = False) -> Iterator[pb.TokenLogprobs]:
    """One message per prompt token: an empty one for the first, which nothing predicts."""
    if logprobs is not None:
        yield pb.TokenLogprobs()
        yield from _rows(logprobs.token_ids.array, logprobs.logprobs.array, logprobs.ranks.array, scores_all)


def _count_logprobs(event: Event) -> int:
    if isinstance(event, Delta) and event.logprobs is not None:
        token_ids = event.logprobs.token_ids
    elif isinstance(event, Started) and event.prompt_logprobs is not None:
        token_ids = event.prompt_logprobs.token_ids.array
    else:
        return 0
    return len(token_ids) * _COST_OF_ALL if event.scores_all else token_ids.size


def _rows(
    token_ids: NDArray[Any], logprobs: NDArray[Any], ranks: NDArray[Any], scores_all: bool
) -> Iterator[pb.TokenLogprobs]:
    """Column 0 is the token itself, the others are the most likely ones, those asked for, or all."""
    if scores_all:
        yield from map(_all_logprobs, token_ids, logprobs, ranks.tolist())
        return
    for ids, values, rank in zip(token_ids.tolist(), logprobs.tolist(), ranks.tolist(), strict=True):
        top = [pb.TopLogprob(token_id=i, logprob=v) for i, v in zip(ids[1:], values[1:], strict=True)]
        yield pb.TokenLogprobs(token_id=ids[0], logprob=values[0], rank=rank, top=top)


def _all_logprobs(token_ids: NDArray[Any], logprobs: NDArray[Any], rank: int) -> pb.TokenLogprobs:
    """The floats become a part of the message by parsing them: appending takes a thousand times as long."""
    message = pb.TokenLogprobs(token_id=int(token_ids[0]), logprob=float(logprobs[0]), rank=rank)
    by_token_id = np.full(int(token_ids.max()) + 1, -np.inf, "<f4")
    by_token_id[token_ids[1:]] = logprobs[1:]
    message.MergeFromString(_ALL_TAG + varint(by_token_id.nbytes) + by_token_id.tobytes())
    return message
