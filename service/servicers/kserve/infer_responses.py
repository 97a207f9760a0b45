"""What happens to a request, as responses of Triton's vLLM backend: tensors have an element for each sequence."""

import json
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from core.wire.messages import LogprobsLists
from service.events import Delta, Event, Finished
from service.servicers.kserve.infer_request import VERSION, InferRequest
from service.servicers.kserve.tensor_specs import (
    CUMULATIVE_LOGPROB,
    FINISH_REASON,
    LOGPROBS,
    NUM_INPUT_TOKENS,
    NUM_OUTPUT_TOKENS,
    TEXT_OUTPUT,
    TensorSpec,
)
from service.text.token_bytes import UnknownTokenError
from service.text.tokenizer import Tokenizer
from sluicegate.third_party.inference import grpc_service_pb2 as pb

FINAL_RESPONSE = "triton_final_response"
_UNFINISHED = "None"
"""As the backend spells it."""


class _Sequence:
    """What one sequence has to tell since the last response, and what it has come to."""

    def __init__(self, prepended: str) -> None:
        self.texts = [prepended]
        self.logprobs: list[dict[int, dict[str, Any]]] = []
        self.num_new_tokens = 0
        self.cumulative_logprob = 0.0
        self.finish_reason = _UNFINISHED

    def forget_told(self) -> None:
        self.texts.clear()
        self.logprobs.clear()
        self.num_new_tokens = 0


class InferResponses:
    """The responses to ``request``: ``add`` its events, then make a ``response`` of what was added since the last."""

    def __init__(self, request: InferRequest, tokenizer: Tokenizer) -> None:
        self._request = request
        self._tokenizer = tokenizer
        self._num_input_tokens = request.generation.num_prompt_tokens
        self._sequences = [_Sequence(request.prepended) for _ in range(request.generation.num_sequences)]
        self._tells_logprobs = LOGPROBS in request.outputs and request.asks_for_logprobs

    def add(self, events: Iterable[Event]) -> None:
        """Take in what has happened."""
        for event in events:
            if isinstance(event, Delta):
                self._add_delta(self._sequences[event.index], event)
            elif isinstance(event, Finished):
                self._sequences[event.index].finish_reason = event.finish.word

    def response(self) -> pb.ModelInferResponse:
        """What was added since the last one."""
        response = empty_response(self._request.id, self._request.model_name)
        for spec, elements in self._tensors():
            if spec in self._request.outputs:
                response.outputs.add(name=spec.name, datatype=spec.datatype, shape=[len(elements)])
                response.raw_output_contents.append(_encoded(spec, elements))
        for sequence in self._sequences:
            sequence.forget_told()
        return response

    def _tensors(self) -> "Iterable[tuple[TensorSpec, Sequence[Any]]]":
        sequences = self._sequences
        yield TEXT_OUTPUT, ["".join(sequence.texts) for sequence in sequences]
        yield FINISH_REASON, [sequence.finish_reason for sequence in sequences]
        yield CUMULATIVE_LOGPROB, [sequence.cumulative_logprob for sequence in sequences]
        yield LOGPROBS, [json.dumps(of.logprobs) if self._tells_logprobs else "null" for of in sequences]
        yield NUM_INPUT_TOKENS, [self._num_input_tokens]
        yield NUM_OUTPUT_TOKENS, [sequence.num_new_tokens for sequence in sequences]

    def _add_delta(self, sequence: _Sequence, event: Delta) -> None:
        sequence.texts.append(event.text)
        sequence.num_new_tokens += len(event.token_ids)
        if event.logprobs is not None:
            sequence.cumulative_logprob += sum(event.logprobs.logprobs[:, 0].tolist())
            if self._tells_logprobs:
                sequence.logprobs += self._told(event.logprobs)

    def _told(self, logprobs: LogprobsLists) -> "Iterable[dict[int, dict[str, Any]]]":
        """For each token, those that could have stood there: itself first, then the most likely ones in their order."""
        rows = zip(logprobs.token_ids.tolist(), logprobs.logprobs.tolist(), logprobs.ranks.tolist(), strict=True)
        for token_ids, values, rank in rows:
            ranks = [rank, *range(1, len(token_ids))]
            yield {
                token_id: {"logprob": value, "rank": at, "decoded_token": self._spelled(token_id)}
                for token_id, value, at in zip(token_ids, values, ranks, strict=True)
            }

    def _spelled(self, token_id: int) -> str:
        """Empty for what is no token."""
        try:
            return self._tokenizer.token_bytes[token_id].decode(errors="replace")
        except UnknownTokenError:
            return ""


def empty_response(request_id: str, model_name: str) -> pb.ModelInferResponse:
    """Without outputs."""
    return pb.ModelInferResponse(model_name=model_name, model_version=VERSION, id=request_id)


def _encoded(spec: TensorSpec, elements: Sequence[Any]) -> bytes:
    match spec.datatype:
        case "BYTES":
            texts = [element.encode() for element in elements]
            return b"".join(struct.pack("<I", len(text)) + text for text in texts)
        case "FP32":
            return struct.pack(f"<{len(elements)}f", *elements)
        case _:
            return struct.pack(f"<{len(elements)}I", *elements)
