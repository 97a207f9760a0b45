"""A stream whose call may be made again, whichever kind of channel it comes over."""

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate_client.errors import SluicegateError
from sluicegate_client.events import Call, StreamEvents
from sluicegate_client.responses import Delta
from sluicegate_client.retry import Attempts


class RepeatableStream(StreamEvents):
    """Until its first message has come, a call that fails may be made again."""

    def __init__(self, call: Call, attempts: Attempts) -> None:
        super().__init__(call)
        self._attempts = attempts
        self._has_begun = False

    def _record(self, response: pb.GenerateStreamResponse) -> Delta | None:
        self._has_begun = True
        return super()._record(response)

    def _wait_s(self, error: SluicegateError) -> float:
        """How long to wait before the call is made again; raises ``error`` if it is not to be."""
        if self._has_begun:
            raise error
        return self._attempts.wait_s(error)
