"""The events of one request as VllmEngine's messages."""

from array import array
from collections.abc import Iterable, Iterator

from smg_grpc_proto.generated import vllm_engine_pb2 as pb

from core.wire.messages import FinishReason
from service.events import Delta, Event, Finished, Started
from service.generation_request import GenerationRequest
from service.sequence import SequenceFinish
from service.servicers.vllm_engine.chunk_encoder import ChunkEncoder
from service.servicers.vllm_engine.logprobs import add_output_logprobs, input_logprobs


class GenerateResponses:
    """One for each request; gives messages as bytes. Every sequence ends with its ``complete``, with all its tokens.

    With ``stream`` its tokens go out in chunks before, the last ones too, each chunk with those that are new; without,
    the completes of all sequences come together at the end, in order. Tokens are kept in four bytes each until then.
    """

    def __init__(self, request: GenerationRequest, stream: bool) -> None:
        self._request = request
        self._stream = stream
        self._output_ids = [array("I") for _ in range(request.sampling_params.n)]
        self._completes = [_complete(request, index) for index in range(request.sampling_params.n)]
        self._num_unfinished = request.sampling_params.n
        self._num_cached_tokens = 0
        self._chunks = ChunkEncoder(request.num_prompt_tokens, 0)
        self._input_logprobs: pb.InputLogProbs | None = None
        self._has_input_logprobs: set[int] = set()

    def of(self, event: Event) -> Iterable[bytes]:
        """What ``event`` makes the client get, if anything. Take all of it before the next event."""
        if isinstance(event, Delta):
            return self._of_delta(event)
        if isinstance(event, Finished):
            return self._of_finish(event.index, event.finish, event.num_cached_tokens)
        self._start(event)
        return ()

    def aborted(self) -> Iterable[bytes]:
        """The whole answer to a request that was aborted before it could run."""
        finish = SequenceFinish(FinishReason.ABORT, None, None, 0)
        return [message for index in range(len(self._completes)) for message in self._of_finish(index, finish, 0)]

    def _start(self, event: Started) -> None:
        self._num_cached_tokens = event.num_cached_tokens
        self._chunks = ChunkEncoder(event.num_prompt_tokens, event.num_cached_tokens)
        if event.prompt_logprobs is not None:
            num_top = self._request.sampling_params.prompt_logprobs or 0
            self._input_logprobs = input_logprobs(self._request.prompt_token_ids, event.prompt_logprobs, num_top)

    def _of_delta(self, event: Delta) -> Iterable[bytes]:
        index = event.index
        self._output_ids[index].extend(event.token_ids)
        if not self._stream:
            self._score(self._completes[index], event)
            return ()
        if event.logprobs is None and self._input_logprobs is None:
            return [self._chunks.encode(index, event.token_ids, len(self._output_ids[index]))]
        return [self._scored_chunk(event).SerializeToString()]

    def _scored_chunk(self, event: Delta) -> pb.GenerateResponse:
        chunk = pb.GenerateStreamChunk(
            token_ids=event.token_ids,
            prompt_tokens=self._request.num_prompt_tokens,
            completion_tokens=len(self._output_ids[event.index]),
            cached_tokens=self._num_cached_tokens,
            index=event.index,
        )
        self._score(chunk, event)
        self._score_prompt(chunk)
        return pb.GenerateResponse(chunk=chunk)

    def _of_finish(self, index: int, finish: SequenceFinish, num_cached_tokens: int) -> Iterable[bytes]:
        complete = self._completes[index]
        complete.output_ids.extend(self._output_ids[index])
        complete.finish_reason = finish.word
        complete.completion_tokens = finish.num_output_tokens
        complete.cached_tokens = num_cached_tokens
        if finish.stop_token_id is not None:
            complete.matched_token_id = finish.stop_token_id
        if finish.stop_string is not None:
            complete.matched_stop_str = finish.stop_string
        self._num_unfinished -= 1
        if self._stream:
            return self._responses([complete])
        return () if self._num_unfinished else self._responses(self._completes)

    def _responses(self, completes: Iterable[pb.GenerateComplete]) -> Iterator[bytes]:
        """One after the other: of a long prompt the scores are megabytes, which each may have to tell."""
        for complete in completes:
            self._score_prompt(complete)
            yield pb.GenerateResponse(complete=complete).SerializeToString()
            complete.ClearField("input_logprobs")

    def _score(self, message: pb.GenerateStreamChunk | pb.GenerateComplete, event: Delta) -> None:
        if event.logprobs is not None:
            num_top = self._request.sampling_params.logprobs or 0
            add_output_logprobs(message.output_logprobs, event.logprobs, num_top)

    def _score_prompt(self, message: pb.GenerateStreamChunk | pb.GenerateComplete) -> None:
        """Once for every sequence, on its first message."""
        if self._input_logprobs is not None and message.index not in self._has_input_logprobs:
            self._has_input_logprobs.add(message.index)
            message.input_logprobs.CopyFrom(self._input_logprobs)


def _complete(request: GenerationRequest, index: int) -> pb.GenerateComplete:
    return pb.GenerateComplete(index=index, prompt_tokens=request.num_prompt_tokens)
