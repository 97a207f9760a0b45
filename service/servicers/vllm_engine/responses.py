"""The events of one request as VllmEngine's messages."""

from collections.abc import Iterator

from smg_grpc_proto.generated import vllm_engine_pb2 as pb

from core.wire.messages import FinishReason
from service.events import Delta, Event, Finished, Started
from service.generation_request import GenerationRequest
from service.sequence import SequenceFinish
from service.servicers.vllm_engine.logprobs import add_output_logprobs, input_logprobs

_FINISH_REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.ABORT: "abort",
    FinishReason.ERROR: "error",
    FinishReason.REPETITION: "repetition",
}


class GenerateResponses:
    """One for each request. Every sequence ends with its own ``complete``, which has all of its tokens.

    With ``stream`` its tokens go out in chunks before, the last ones too, each chunk with those that are new; without,
    the completes of all sequences come together at the end, in order. What each ``complete`` says is gathered in the
    message itself.
    """

    def __init__(self, request: GenerationRequest, stream: bool) -> None:
        self._request = request
        self._stream = stream
        self._answers = [_answer(request, index) for index in range(request.sampling_params.n)]
        self._num_unfinished = len(self._answers)
        self._num_cached_tokens = 0
        self._input_logprobs: pb.InputLogProbs | None = None
        self._has_input_logprobs: set[int] = set()

    def of(self, event: Event) -> list[pb.GenerateResponse]:
        """What ``event`` makes the client get, if anything."""
        if isinstance(event, Delta):
            return self._of_delta(event)
        if isinstance(event, Finished):
            return self._of_finish(event.index, event.finish, event.num_cached_tokens)
        self._start(event)
        return []

    def aborted(self) -> Iterator[pb.GenerateResponse]:
        """The whole answer to a request that was aborted before it could run."""
        for index in range(len(self._answers)):
            yield from self._of_finish(index, SequenceFinish(FinishReason.ABORT, None, None, 0), 0)

    def _start(self, event: Started) -> None:
        self._num_cached_tokens = event.num_cached_tokens
        if event.prompt_logprobs is not None:
            num_top = self._request.sampling_params.prompt_logprobs or 0
            self._input_logprobs = input_logprobs(self._request.prompt_token_ids, event.prompt_logprobs, num_top)

    def _of_delta(self, event: Delta) -> list[pb.GenerateResponse]:
        complete = self._answers[event.index].complete
        complete.output_ids.extend(event.token_ids)
        if not self._stream:
            self._score(complete, event)
            return []
        response = pb.GenerateResponse()
        chunk = response.chunk
        chunk.token_ids.extend(event.token_ids)
        chunk.prompt_tokens = complete.prompt_tokens
        chunk.completion_tokens = len(complete.output_ids)
        chunk.cached_tokens = self._num_cached_tokens
        chunk.index = event.index
        self._score(chunk, event)
        self._score_prompt(chunk)
        return [response]

    def _of_finish(self, index: int, finish: SequenceFinish, num_cached_tokens: int) -> list[pb.GenerateResponse]:
        complete = self._answers[index].complete
        complete.finish_reason = _FINISH_REASONS[finish.reason]
        complete.completion_tokens = finish.num_output_tokens
        complete.cached_tokens = num_cached_tokens
        if finish.stop_token_id is not None:
            complete.matched_token_id = finish.stop_token_id
        if finish.stop_string is not None:
            complete.matched_stop_str = finish.stop_string
        self._score_prompt(complete)
        self._num_unfinished -= 1
        if self._stream:
            return [self._answers[index]]
        return self._answers if self._num_unfinished == 0 else []

    def _score(self, message: pb.GenerateStreamChunk | pb.GenerateComplete, event: Delta) -> None:
        if event.logprobs is not None:
            num_top = self._request.sampling_params.logprobs or 0
            add_output_logprobs(message.output_logprobs, event.logprobs, num_top)

    def _score_prompt(self, message: pb.GenerateStreamChunk | pb.GenerateComplete) -> None:
        """Once for every sequence, on its first message."""
        if self._input_logprobs is not None and message.index not in self._has_input_logprobs:
            self._has_input_logprobs.add(message.index)
            message.input_logprobs.CopyFrom(self._input_logprobs)


def _answer(request: GenerationRequest, index: int) -> pb.GenerateResponse:
    complete = pb.GenerateComplete(index=index, prompt_tokens=request.num_prompt_tokens)
    return pb.GenerateResponse(complete=complete)
