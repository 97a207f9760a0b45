"""Events as the bytes of GenerateStreamResponse.

Nearly every event is a delta of one token. To make a message of it, serialize that and throw it away would cost several
times what writing its few bytes does; every other event goes through its message.
"""

from functools import lru_cache

from service.events import Delta, Event
from service.servicers.protobuf_bytes import bytes_tag, number_tag, varint
from service.servicers.responses import to_stream_response
from sluicegate.v1 import inference_service_pb2 as pb

_REQUEST_ID = bytes_tag(pb.GenerateStreamResponse.REQUEST_ID_FIELD_NUMBER)
_DELTA = bytes_tag(pb.GenerateStreamResponse.DELTA_FIELD_NUMBER)
_INDEX = number_tag(pb.Delta.INDEX_FIELD_NUMBER)
_TEXT = bytes_tag(pb.Delta.TEXT_FIELD_NUMBER)
_TOKEN_IDS = bytes_tag(pb.Delta.TOKEN_IDS_FIELD_NUMBER)


class EventEncoder:
    """Of the request of ``request_id``. Gives what the message would be serialized to, byte for byte."""

    __slots__ = ("_head", "_request_id")

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        name = request_id.encode()
        self._head = _REQUEST_ID + varint(len(name)) + name + _DELTA

    def encode(self, event: Event) -> bytes:
        """One message."""
        if isinstance(event, Delta) and event.logprobs is None:
            return self.encode_plain(event)
        return to_stream_response(self._request_id, event).SerializeToString()

    def encode_plain(self, delta: Delta) -> bytes:
        """That of a delta without log-probabilities. Runs for every token."""
        text, token_ids = delta.text.encode(), delta.token_ids
        if token_ids or delta.index or not text:
            body = _encode_fields(delta.index, text, token_ids)
            return b"".join((self._head, varint(len(body)), body))
        num_bytes = len(text)
        if num_bytes < _MAX_SHORT_TEXT:
            return b"".join((self._head, _SHORT_TEXT_HEADS[num_bytes], text))
        body = _TEXT + varint(num_bytes) + text
        return b"".join((self._head, varint(len(body)), body))


@lru_cache(maxsize=2**16)
def _one_token(token_id: int) -> bytes:
    """The whole field."""
    packed = varint(token_id)
    return _TOKEN_IDS + varint(len(packed)) + packed


def _encode_fields(index: int, text: bytes, token_ids: list[int]) -> bytes:
    body = _INDEX + varint(index) if index else b""
    if text:
        body += _TEXT + varint(len(text)) + text
    if len(token_ids) == 1:
        body += _one_token(token_ids[0])
    elif token_ids:
        packed = b"".join(map(varint, token_ids))
        body += _TOKEN_IDS + varint(len(packed)) + packed
    return body


_MAX_SHORT_TEXT = 126
_SHORT_TEXT_HEADS = [varint(size + 2) + _TEXT + varint(size) for size in range(_MAX_SHORT_TEXT)]
"""By the bytes of a text that is all of a delta: what comes before it."""
