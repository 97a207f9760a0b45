"""The APIs that gateways are asked by: what a request looks like, and which tokens an answer brought."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from smg_grpc_proto.generated import vllm_engine_pb2

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.sampling_params_pb2 import SamplingParams


@dataclass(frozen=True)
class Stream:
    """What one stream asks for: ``name`` is its request_id."""

    name: str
    prompt: Sequence[int]
    num_tokens: int


@dataclass(frozen=True)
class Api:
    """``tokens_of`` a message: names of streams, empty where a call has but one, and how many tokens each got.

    ``carries_many``: one call carries the streams of a connection.
    """

    path: str
    request: Callable[[Stream], bytes]
    tokens_of: Callable[[bytes], Sequence[tuple[str, int]]]
    carries_many: bool = False


def _generate_request(stream: Stream) -> pb.GenerateRequest:
    return pb.GenerateRequest(
        request_id=stream.name,
        token_ids=pb.TokenIds(ids=stream.prompt),
        sampling_params=SamplingParams(temperature=0, max_tokens=stream.num_tokens, ignore_eos=True),
        output_options=pb.OutputOptions(token_ids=True),
    )


def _multiplexed_tokens(message: bytes) -> list[tuple[str, int]]:
    events = pb.MultiplexedResponse.FromString(message).events
    return [(event.request_id, len(event.delta.token_ids)) for event in events]


GENERATE_STREAM = Api(
    "/sluicegate.v1.InferenceService/GenerateStream",
    lambda stream: _generate_request(stream).SerializeToString(),
    lambda message: [("", len(pb.GenerateStreamResponse.FromString(message).delta.token_ids))],
)
GENERATE_MULTIPLEXED = Api(
    "/sluicegate.v1.InferenceService/GenerateMultiplexed",
    lambda stream: pb.MultiplexedRequest(generate=_generate_request(stream)).SerializeToString(),
    _multiplexed_tokens,
    carries_many=True,
)


def _vllm_engine_request(stream: Stream) -> bytes:
    params = vllm_engine_pb2.SamplingParams(temperature=0, max_tokens=stream.num_tokens, ignore_eos=True)
    tokenized = vllm_engine_pb2.TokenizedInput(input_ids=stream.prompt)
    request = vllm_engine_pb2.GenerateRequest(
        request_id=stream.name, tokenized=tokenized, sampling_params=params, stream=True
    )
    return bytes(request.SerializeToString())


VLLM_ENGINE = Api(
    "/vllm.grpc.engine.VllmEngine/Generate",
    _vllm_engine_request,
    lambda message: [("", len(vllm_engine_pb2.GenerateResponse.FromString(message).chunk.token_ids))],
)
"""Token ids alone: the API has no text."""


def vllm_rs(service: str) -> Api:
    """vLLM's Rust front end; ``service``: Generate in vLLM 0.25.1, Inference later."""
    messages: Any = grpc.protos("bench/gateways/vllm_generate.proto")

    def request(stream: Stream) -> bytes:
        message = messages.GenerateRequest(
            token_ids=messages.TokenIds(ids=stream.prompt),
            temperature=0,
            stopping=messages.Stopping(max_new_tokens=stream.num_tokens, ignore_eos=True),
            response=messages.Response(output_token_ids=True),
        )
        return bytes(message.SerializeToString())

    def tokens_of(message: bytes) -> list[tuple[str, int]]:
        return [("", len(messages.GenerateResponse.FromString(message).outputs.token_ids))]

    return Api(f"/vllm.{service}/GenerateStream", request, tokens_of)
