"""A stream whose call may be made again, whichever kind of channel it comes over."""

import random

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate_client.delivered import Delivered, DiffersError
from sluicegate_client.errors import AlreadyExistsError, SluicegateError, UnavailableError
from sluicegate_client.events import Call, StreamEvents
from sluicegate_client.responses import Delta
from sluicegate_client.retry import Attempts

_SEEDS = range(1, 2**62)
"""The k-th sequence adds k, which stays far from the end of an int64."""


def make_repeatable(request: pb.GenerateRequest) -> None:
    """Gives a request that draws a seed, if it has none, so that it is answered with the same tokens again."""
    params = request.sampling_params
    is_greedy = params.HasField("temperature") and params.temperature == 0
    if not is_greedy and (not params.HasField("seed") or params.seed == -1):
        params.seed = random.choice(_SEEDS)


class RepeatableStream(StreamEvents):
    """Until its first message has come, a call that fails may be made again; a stream that ``resumes`` later, too.

    What was delivered is then left out of the new answer, once it has been found to be the same.
    """

    def __init__(self, call: Call, attempts: Attempts, resumes: bool) -> None:
        super().__init__(call)
        self._attempts = attempts
        self._delivered = Delivered() if resumes else None
        self._call_has_begun = False
        self._broke_off: SluicegateError | None = None

    def _record(self, response: pb.GenerateStreamResponse) -> Delta | None:
        self._call_has_begun = True
        if self._delivered is None:
            return super()._record(response)
        try:
            return self._record_new(self._delivered, response)
        except DiffersError as difference:
            self._cancel_call()
            self._delivered = None
            assert self._broke_off is not None, "a first answer differs from nothing"
            raise _with_reason(self._broke_off, difference) from self._broke_off

    def _record_new(self, delivered: Delivered, response: pb.GenerateStreamResponse) -> Delta | None:
        started, ended = self.started, self.finished.get(response.finished.index)
        delta = super()._record(response)
        if started is not None:
            self.started = started
        if response.HasField("finished"):
            delivered.check_end(response.finished.index)
            if ended is not None:
                self.finished[response.finished.index] = ended
        if delta is None or (new := delivered.new_part(delta)) is None:
            return None
        if self._broke_off is not None and new.index in self.finished:
            raise DiffersError(f"sequence {new.index} does not end where it did")
        self._attempts.succeed()
        return new

    def _wait_s(self, error: SluicegateError) -> float:
        """How long to wait before the call is made again; raises ``error`` if it is not to be."""
        if self._call_has_begun:
            if self._delivered is None or not isinstance(error, UnavailableError):
                raise error
            self._broke_off = error
            self._delivered.repeat()
            self._call_has_begun = False
        elif isinstance(error, AlreadyExistsError) and self._broke_off is not None:
            # The server has not noticed yet that the request of this id has lost its reader.
            error = self._broke_off
        return self._attempts.wait_s(error)


def _with_reason(error: SluicegateError, difference: DiffersError) -> SluicegateError:
    message = f"{error}; the answer that another call got differs from what was delivered: {difference}"
    return type(error)(message, error.code, error.reason, error.violations, error.retry_after)
