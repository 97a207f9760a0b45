"""Events as the bytes of GenerateStreamResponse.

Nearly every event is a delta of one token. To make a message of it, serialize that and throw it away would cost several
times what writing its few bytes does; every other event goes through its message.
"""

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
        text = delta.text.encode()
        body = _TEXT + varint(len(text)) + text if text else b""
        if delta.token_ids:
            token_ids = b"".join([varint(token_id) for token_id in delta.token_ids])
            body += _TOKEN_IDS + varint(len(token_ids)) + token_ids
        if delta.index:
            body = _INDEX + varint(delta.index) + body
        return self._head + varint(len(body)) + body
