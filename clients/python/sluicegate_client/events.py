"""What a stream has told so far, whichever kind of channel it comes over."""

from typing import Protocol

from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate_client.responses import Delta, Finished, Started, Usage


class Call(Protocol):
    """What gRPC's calls have in common, and a request of a session."""

    def cancel(self) -> bool: ...


class StreamEvents:
    """The events of one request but its deltas, which go straight to the reader.

    ``started`` is None until the prompt has been computed; ``finished`` gains an entry, by index, for each sequence
    that ends.
    """

    def __init__(self, call: Call) -> None:
        self._cancel_call = call.cancel
        self.cancelled = False
        self.request_id = ""
        self.started: Started | None = None
        self.finished: dict[int, Finished] = {}

    @property
    def usage(self) -> Usage | None:
        """Tokens of the whole request: the prompt once, the outputs of the sequences that have ended. None before."""
        if self.started is None or not self.finished:
            return None
        num_output_tokens = sum(finished.usage.num_output_tokens for finished in self.finished.values())
        return Usage(self.started.num_prompt_tokens, self.started.num_cached_tokens, num_output_tokens)

    def cancel(self) -> None:
        """Ends the call, and the request in the engine. The iteration ends quietly. Harmless when it is over."""
        self.cancelled = True
        self._cancel_call()

    def _follow(self, call: Call) -> None:
        """``call`` has taken the place of the one before."""
        self._cancel_call = call.cancel
        if self.cancelled:
            call.cancel()

    def __del__(self) -> None:
        self._cancel_call()

    def _record(self, response: pb.GenerateStreamResponse) -> Delta | None:
        """Returns the delta, if the event is one."""
        self.request_id = response.request_id
        match response.WhichOneof("event"):
            case "started":
                self.started = Started.from_proto(response.started)
            case "finished":
                self.finished[response.finished.index] = Finished.from_proto(response.finished)
            case "delta":
                return Delta.from_proto(response.delta)
        return None
