"""Chunks written by hand are what protobuf writes."""

from hypothesis import given
from hypothesis import strategies as st
from smg_grpc_proto.generated import vllm_engine_pb2 as pb

from service.servicers.vllm_engine.chunk_encoder import ChunkEncoder

NUMBERS = st.sampled_from([0, 1, 127, 128, 16384, 2**31, 2**32 - 1])


@given(st.lists(NUMBERS), NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_byte_for_byte(token_ids: list[int], index: int, prompt: int, completion: int, cached: int) -> None:
    """Zeros and empty lists too, which are left out."""
    chunk = pb.GenerateStreamChunk(
        token_ids=token_ids, prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached, index=index
    )
    expected = pb.GenerateResponse(chunk=chunk).SerializeToString()
    assert ChunkEncoder(prompt, cached).encode(index, token_ids, completion) == expected
