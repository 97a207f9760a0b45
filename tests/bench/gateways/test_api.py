"""What is asked by each API, and what its answers bring."""

from smg_grpc_proto.generated import vllm_engine_pb2

from bench.gateways.api import GENERATE_MULTIPLEXED, GENERATE_STREAM, VLLM_ENGINE, Stream, vllm_rs
from sluicegate.v1 import inference_service_pb2 as pb

STREAM = Stream("s", [5, 6], 7)


def test_our_own() -> None:
    """Text and token ids; many streams in one call are told apart by their names."""
    request = pb.GenerateRequest.FromString(GENERATE_STREAM.request(STREAM))
    assert (request.request_id, request.sampling_params.max_tokens, request.output_options.token_ids) == ("s", 7, True)
    assert pb.MultiplexedRequest.FromString(GENERATE_MULTIPLEXED.request(STREAM)).generate == request
    event = pb.GenerateStreamResponse(request_id="s", delta=pb.Delta(token_ids=[1, 2]))
    assert GENERATE_STREAM.tokens_of(event.SerializeToString()) == [("", 2)]
    message = pb.MultiplexedResponse(events=[event, pb.GenerateStreamResponse(request_id="t")])
    assert GENERATE_MULTIPLEXED.tokens_of(message.SerializeToString()) == [("s", 2), ("t", 0)]


def test_vllm_engine() -> None:
    """A stream of tokens."""
    request = vllm_engine_pb2.GenerateRequest.FromString(VLLM_ENGINE.request(STREAM))
    assert (request.stream, [*request.tokenized.input_ids], request.sampling_params.max_tokens) == (True, [5, 6], 7)
    answer = vllm_engine_pb2.GenerateResponse(chunk=vllm_engine_pb2.GenerateStreamChunk(token_ids=[1]))
    assert VLLM_ENGINE.tokens_of(answer.SerializeToString()) == [("", 1)]


def test_vllm_rs() -> None:
    """The service had another name once."""
    api = vllm_rs("Inference")
    assert api.path == "/vllm.Inference/GenerateStream"
    assert api.request(STREAM)
    assert api.tokens_of(b"") == [("", 0)]
