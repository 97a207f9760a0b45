"""Chunks as the bytes of GenerateResponse.

Nearly every message is a chunk of one token: writing its few bytes costs a fraction of making a message of it first.
"""

from collections.abc import Sequence

from smg_grpc_proto.generated import vllm_engine_pb2 as pb

from service.servicers.protobuf_bytes import bytes_tag, number_tag, varint

_CHUNK = bytes_tag(pb.GenerateResponse.CHUNK_FIELD_NUMBER)
_TOKEN_IDS = bytes_tag(pb.GenerateStreamChunk.TOKEN_IDS_FIELD_NUMBER)
_PROMPT_TOKENS = number_tag(pb.GenerateStreamChunk.PROMPT_TOKENS_FIELD_NUMBER)
_COMPLETION_TOKENS = number_tag(pb.GenerateStreamChunk.COMPLETION_TOKENS_FIELD_NUMBER)
_CACHED_TOKENS = number_tag(pb.GenerateStreamChunk.CACHED_TOKENS_FIELD_NUMBER)
_INDEX = number_tag(pb.GenerateStreamChunk.INDEX_FIELD_NUMBER)


class ChunkEncoder:
    """Of one request, whose prompt has ``num_prompt_tokens``, of which ``num_cached_tokens`` were cached.

    Gives what a message without log-probabilities would be serialized to, byte for byte.
    """

    __slots__ = ("_cached", "_prompt")

    def __init__(self, num_prompt_tokens: int, num_cached_tokens: int) -> None:
        self._prompt = _number(_PROMPT_TOKENS, num_prompt_tokens)
        self._cached = _number(_CACHED_TOKENS, num_cached_tokens)

    def encode(self, index: int, token_ids: Sequence[int], num_completion_tokens: int) -> bytes:
        """The chunk of sequence ``index`` with ``token_ids``, the last of ``num_completion_tokens`` so far."""
        packed = b"".join([varint(token_id) for token_id in token_ids])
        body = _TOKEN_IDS + varint(len(packed)) + packed if packed else b""
        body += self._prompt + _number(_COMPLETION_TOKENS, num_completion_tokens) + self._cached
        if index:
            body += _INDEX + varint(index)
        return _CHUNK + varint(len(body)) + body


def _number(tag: bytes, number: int) -> bytes:
    """A field that is zero is left out."""
    return tag + varint(number) if number else b""
